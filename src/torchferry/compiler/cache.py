"""Optimized graphs on disk, so that a second process needs not make them again."""

from __future__ import annotations

import hashlib
import json
import logging
import os
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import onnx
import torch
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]  # it ships none

from torchferry.compiler.program import Feed, Result
from torchferry.config import read_config
from torchferry.optimizer import kernel_library

if TYPE_CHECKING:  # an entry is read without what makes one
    from torchferry.compiler.graph import Translated

__all__ = ["Entry", "find", "store"]

_log = logging.getLogger("torchferry")

_FORMAT = "torchferry graph 1"
_MOST_OF_ALL = 2**30  # bytes in the folder; what was not used for longest goes first
_MOST_OF_ONE = 2**28
_LARGE = 1024  # bytes of a weight that stands in no model


@dataclass(frozen=True)
class Entry:
    """A graph as it is kept.

    Attributes:
        model: weights over 1 KiB that are views of arguments are only named in it.
        feeds: one for each of its inputs.
        results: one for each result of the graph.
        views: of each weight that is only named, the argument, and how it lies in its memory:
            shape, strides, and the first element, counted from the argument's own.
    """

    model: onnx.ModelProto
    feeds: tuple[Feed, ...]
    results: tuple[Result, ...]
    views: dict[str, tuple[int, list[int], list[int], int]]

    def weights(self, tensors: Mapping[int, torch.Tensor]) -> dict[str, torch.Tensor]:
        """The weights that are only named in the model, out of the arguments of a call."""
        found = {}
        for name, (position, shape, strides, start) in self.views.items():
            tensor = tensors[position].detach()
            found[name] = tensor.as_strided(shape, strides, tensor.storage_offset() + start)
        return found


def find(key: str) -> Entry | None:
    """An entry; ``None`` when there is none, or it is damaged, which is the same."""
    path = _path(key)
    if path is None or not path.is_file():
        return None
    try:
        head, _, content = path.read_bytes().partition(b"\n")
        said = json.loads(head)
        if said["format"] != _FORMAT or said["sha256"] != hashlib.sha256(content).hexdigest():
            return None
        entry = Entry(
            onnx.load_model_from_string(content),
            tuple(Feed(*item) for item in said["feeds"]),
            tuple(_result(item) for item in said["results"]),
            {name: tuple(item) for name, item in said["views"].items()},
        )
    except (OSError, ValueError, LookupError, TypeError, DecodeError):
        return None
    library = kernel_library(entry.model)
    if library is not None and not library.is_file():
        return None
    with suppress(OSError):
        os.utime(path)
    return entry


def store(
    key: str, model: onnx.ModelProto, translated: Translated, weights: Mapping[int, torch.Tensor]
) -> None:
    """Keep a graph; what cannot be kept is left out, and so is a disk that is full.

    Args:
        key: its name, in which the content of the weights counts.
        model: as onnxruntime loaded it, weights over 1 KiB only named.
        translated: what it was made of.
        weights: the arguments that were frozen, by position.
    """
    path = _path(key)
    if path is None or not all(_is_plain(result) for result in translated.results):
        return
    views, content = {}, onnx.ModelProto()
    content.CopyFrom(model)
    held = {t.name: t for t in content.graph.initializer}
    for name, value in translated.model.graph.initializers.items():
        tensor: Any = value.const_value
        if tensor is None or name not in held or not held[name].external_data:
            continue
        view = _view(tensor, weights)
        if view is not None:
            views[name] = view
            continue
        if tensor.nbytes + content.ByteSize() > _MOST_OF_ONE:
            return
        del held[name].external_data[:]
        held[name].data_location = onnx.TensorProto.DEFAULT
        held[name].raw_data = tensor.tobytes()
    feeds = [list(asdict(feed).values()) for feed in translated.feeds]
    results = [asdict(result) for result in translated.results]
    _write(path, content.SerializeToString(), feeds=feeds, results=results, views=views)


def _path(key: str) -> Path | None:
    folder = read_config().cache_folder
    return None if folder is None else folder / "graphs" / f"{key}.graph"


def _view(
    tensor: Any, weights: Mapping[int, torch.Tensor]
) -> tuple[int, list[int], list[int], int] | None:
    """Which argument a weight is a view of, and how."""
    raw = getattr(tensor, "raw", None)
    if not isinstance(raw, torch.Tensor):
        return None
    memory = raw.untyped_storage().data_ptr()
    for position, weight in weights.items():
        if weight.untyped_storage().data_ptr() == memory and weight.dtype == raw.dtype:
            start = int(raw.storage_offset()) - int(weight.storage_offset())
            return position, list(raw.shape), list(raw.stride()), start
    return None


def _is_plain(result: Result) -> bool:
    return type(result.constant) in (int, float, bool, type(None))


def _result(said: dict[str, Any]) -> Result:
    axes = said.pop("axes")
    return Result(**said, axes=None if axes is None else tuple(axes))


def _write(path: Path, content: bytes, **said: Any) -> None:
    digest = hashlib.sha256(content).hexdigest()
    head = json.dumps({"format": _FORMAT, "sha256": digest} | said)
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=path.parent, delete=False) as part:
            part.write(head.encode() + b"\n" + content)
        Path(part.name).replace(path)
        _shrink(path.parent)
    except OSError as error:
        _log.info("a compiled graph is not kept: %s", error)


def _shrink(folder: Path) -> None:
    """Remove what was not used for longest until the folder is within its bound."""
    found = [(file.stat().st_mtime, file.stat().st_size, file) for file in folder.iterdir()]
    left = sum(size for _, size, _ in found)
    for _, size, file in sorted(found, key=lambda item: item[0]):
        if left <= _MOST_OF_ALL:
            break
        file.unlink(missing_ok=True)
        left -= size
