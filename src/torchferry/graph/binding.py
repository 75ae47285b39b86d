"""Weights of a model that was converted without data, bound to the files of a checkpoint."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir

from torchferry.errors import UsageError
from torchferry.graph.reference import Region, is_unbound

__all__ = ["Stored", "bind_weights", "stored_weights"]

# https://github.com/huggingface/safetensors#format; sub-byte kinds have no fixed packing in ONNX.
_KINDS = {
    "BOOL": ir.DataType.BOOL, "U8": ir.DataType.UINT8, "I8": ir.DataType.INT8,
    "U16": ir.DataType.UINT16, "I16": ir.DataType.INT16, "U32": ir.DataType.UINT32,
    "I32": ir.DataType.INT32, "U64": ir.DataType.UINT64, "I64": ir.DataType.INT64,
    "F16": ir.DataType.FLOAT16, "BF16": ir.DataType.BFLOAT16, "F32": ir.DataType.FLOAT,
    "F64": ir.DataType.DOUBLE, "F8_E4M3": ir.DataType.FLOAT8E4M3FN,
    "F8_E5M2": ir.DataType.FLOAT8E5M2,
}  # fmt: skip
_LONGEST = 100_000_000  # bytes; safetensors refuses longer headers


@dataclass(frozen=True)
class Stored:
    """A tensor in a ``.safetensors`` file.

    Attributes:
        path: the file.
        kind: its element type as the format writes it: ``BF16``.
        shape: its sizes.
        offset: first byte, from the start of the file.
        length: bytes.
    """

    path: Path
    kind: str
    shape: tuple[int, ...]
    offset: int
    length: int


def bind_weights(
    model: ir.Model,
    folder: Path | str,
    *,
    names: Mapping[str, str] | None = None,
    values: Mapping[str, Any] | None = None,
) -> tuple[Region, ...]:
    """Bind the weights that have no data to the tensors of a checkpoint, by name; copies nothing.

    A weight is found under its own name, under that of a weight it is tied to, or with the prefix
    that a model inside another one has in the checkpoint (``model.norm.weight`` for
    ``norm.weight``), or the other way round. What is not found stays without data: saving names
    it. ``save(model, path)`` then copies the bytes; ``save(model, path, regions=...)`` with what
    is returned refers to the files.

    Args:
        model: converted from a module on ``meta`` or of fake tensors; changed in place.
        folder: holds ``*.safetensors``.
        names: the checkpoint's names of weights that it calls otherwise.
        values: arrays for what no checkpoint holds: ``{"rotary_emb.inv_freq": ...}``.

    Returns:
        The files that are used.

    Raises:
        UsageError: no or damaged files, or a tensor of another shape or dtype than the weight.
    """
    stored = stored_weights(Path(folder))
    used: dict[Path, Region] = {}
    for value in _unbound(model):
        if values is not None and value.name in values:
            value.const_value = _given(value, values[str(value.name)])
            continue
        key = (names or {}).get(str(value.name)) or _find(value, stored)
        if key is None:
            continue
        if key not in stored:
            raise UsageError(f"{folder} holds no {key!r}, which {value.name} was to be bound to")
        found = stored[key]
        _check(value, key, found)
        value.const_value = ir.ExternalTensor(
            found.path.absolute(),
            found.offset,
            found.length,
            _KINDS[found.kind],
            shape=ir.Shape(found.shape),
            name=str(value.name),
        )
        used.setdefault(found.path, Region(found.path))
    return tuple(used.values())


def stored_weights(folder: Path) -> dict[str, Stored]:
    """Every tensor of the ``*.safetensors`` files in a folder, by name; reads headers only.

    Raises:
        UsageError: there is no such file, one is damaged, or two hold the same name.
    """
    found: dict[str, Stored] = {}
    for path in sorted(folder.glob("*.safetensors")):
        for name, tensor in _read(path):
            if name in found:
                raise UsageError(
                    f"{found[name].path} and {path.name} both hold {name!r}: which of them is "
                    "meant? Give a folder with one checkpoint"
                )
            found[name] = tensor
    if not found:
        raise UsageError(f"{folder} has no weights in *.safetensors")
    return found


def _unbound(model: ir.Model) -> Iterator[ir.Value]:
    for graph in model.graphs():
        yield from [v for v in graph.initializers.values() if is_unbound(v.const_value)]


def _find(value: ir.Value, stored: Mapping[str, Stored]) -> str | None:
    """The checkpoint's name of a weight."""
    tied: list[str] = value.meta.get("tied", [])
    own = [str(value.name), *tied]
    inner = [name.partition(".")[2] for name in own]
    for name in (*own, *inner):
        if name in stored:
            return name
    outer = {key for key in stored if key.partition(".")[2] in own}
    return outer.pop() if len(outer) == 1 else None


def _given(value: ir.Value, content: Any) -> ir.TensorProtocol:
    array = np.asarray(content)
    shape = None if value.shape is None else tuple(value.shape.numpy())
    if value.dtype is None or array.shape != shape or array.dtype != value.dtype.numpy():
        raise UsageError(
            f"the value given for {value.name} is {array.dtype} {list(array.shape)}, and the "
            f"model wants {value.dtype and value.dtype.name} {list(shape or ())}"
        )
    return ir.Tensor(array, name=value.name)


def _check(value: ir.Value, key: str, found: Stored) -> None:
    shape = None if value.shape is None else tuple(value.shape.numpy())
    kind = _KINDS.get(found.kind)
    if shape != found.shape or kind != value.dtype:
        wanted = value.dtype.name if value.dtype is not None else "unknown"
        raise UsageError(
            f"{found.path} holds {key!r} as {found.kind} {list(found.shape)}, and the model wants "
            f"{wanted} {list(shape or ())}: convert the model in the checkpoint's dtype, from the "
            "configuration that belongs to it"
        )


def _read(path: Path) -> Iterator[tuple[str, Stored]]:
    if not path.is_file():
        raise UsageError(f"{path} is not a file: save the checkpoint again")
    try:
        size = path.stat().st_size
        with path.open("rb") as stream:
            length = int.from_bytes(stream.read(8), "little")
            fits = length <= min(_LONGEST, size - 8)
            header = json.loads(stream.read(length) if fits else b"")
        header.pop("__metadata__", None)
        for name, tensor in header.items():
            yield str(name), _stored(path, tensor, 8 + length, size)
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror or error}") from error
    except (AttributeError, LookupError, RecursionError, TypeError, ValueError) as error:
        reason = f"{type(error).__name__}: {error}"[:200]
        raise UsageError(
            f"{path} is no .safetensors file, or it is cut short ({reason})"
        ) from error


def _stored(path: Path, tensor: Mapping[str, Any], start: int, size: int) -> Stored:
    kind, (begin, end) = str(tensor["dtype"]), tensor["data_offsets"]
    shape = tuple(int(axis) for axis in tensor["shape"])
    known = _KINDS.get(kind)
    right = known is None or end - begin == math.prod(shape) * known.bitwidth // 8
    if not 0 <= begin <= end or start + end > size or not right:
        raise ValueError(f"a tensor of {kind} {shape} from byte {begin} to {end}")
    return Stored(path, kind, shape, start + begin, end - begin)
