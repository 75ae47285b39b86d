"""A reference that is read from a dump: what another run computed, so that nothing is run again.

A dump of modules (``torchferry dump``, `torchferry.steal_forward`) holds what each was given and
returned; `keep_values` writes every value of an ONNX model, so that two versions of onnxruntime,
which no process can hold, can be compared.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

import onnx_ir as ir
import torch

from torchferry.comparer.align import Origin, align_modules, in_order
from torchferry.comparer.feeds import model_feeds
from torchferry.comparer.piece import Runner, ort_value
from torchferry.comparer.reference import Reference
from torchferry.comparer.trace import trace_onnx
from torchferry.dumper import Key, open_dump
from torchferry.dumper.document import DOCUMENT
from torchferry.dumper.store import read_entries
from torchferry.errors import UsageError
from torchferry.graph import io
from torchferry.values.flatten import flatten

__all__ = ["holds_dump", "keep_values", "of_dump"]

Call = tuple[tuple[Any, ...], dict[str, Any]]

_PARTS = 3  # of a key: name, number of the call, I or O
_VALUE = "V"  # third part of the key of an ONNX value, beside I and O of a module's call


def holds_dump(path: Path) -> bool:
    """Whether a file or folder is a dump and no model.

    Raises:
        UsageError: an ``.onnx`` file that cannot be read.
    """
    if path.is_dir():
        return any((path / name).is_file() for name in ("index.json", "000000.safetensors"))
    if path.suffix == ".onnx":
        return DOCUMENT in io.load(path).metadata_props
    return path.suffix == ".safetensors"


def of_dump(
    path: Path, onnx: ir.Model, given: Call | None = None
) -> tuple[dict[str, torch.Tensor], Reference]:
    """The inputs of an ONNX model and what it is compared with, both out of a dump.

    Args:
        path: the dump. Of several calls of the model, the first that the ONNX model takes.
        onnx: the ONNX model.
        given: the arguments, where the dump has none of the model itself.

    Raises:
        UsageError: it is no dump, holds the calls of several models, or no inputs that fit.
    """
    counts: dict[Key, int] = {
        key: len(_tensors(value))
        for key, value in read_entries(path)
        if isinstance(key, tuple) and len(key) == _PARTS
    }
    inner = {str(v.name) for node in onnx.graph for v in node.outputs}
    stems: dict[Key, str] = {
        key: str(key[0]) for key in counts if key[2] == _VALUE and key[0] in inner
    }
    root = "" if stems else _root(path, counts)
    number, feeds = _inputs(path, root, onnx, given)
    if stems:
        origins = {name: Origin(name, "name") for name in stems.values()}
    else:
        aligned = align_modules(onnx.graph)
        stems = _placed(_last_calls(list(counts), root, number), root, aligned)
        single = {stem for key, stem in stems.items() if counts[key] == 1}
        returned = {
            f"output:{i}" for k, stem in stems.items() if not stem for i in range(counts[k])
        }
        known = single | returned
        origins = {name: origin for name, origin in aligned.items() if origin.key in known}

    def values(wanted: Collection[str]) -> Iterator[tuple[str, torch.Tensor]]:
        for key, value in read_entries(path):
            if key in stems:
                for index, tensor in enumerate(_tensors(value)):
                    name = stems[key] or f"output:{index}"
                    if name in wanted:
                        yield name, tensor

    return feeds, Reference(values, in_order(origins, onnx.graph))


def _root(path: Path, keys: Collection[Key]) -> str:
    """The name that all names of a dump begin with: that of the model itself."""
    names = {str(key[0]) for key in keys}
    if not names:
        raise UsageError(f"{path} holds no calls of modules: write one with torchferry dump")
    # Some modules only stand where their paths say.
    roots = [name for name in names if all(_within(other, name) for other in names)]
    return roots[0] if roots else ""


def _within(name: str, outer: str) -> bool:
    return not outer or name == outer or name.startswith(f"{outer}.")


def _inputs(
    path: Path, root: str, onnx: ir.Model, given: Call | None
) -> tuple[int, dict[str, torch.Tensor]]:
    """The number of the first call that the ONNX model takes, and its tensors."""
    refused: UsageError | None = None
    if given is not None:
        return 0, model_feeds(onnx, *given)
    for key, value in read_entries(path):
        if isinstance(key, tuple) and (key[0], key[-1]) == (root, "I"):
            try:
                return int(key[1]), model_feeds(onnx, *value)
            except UsageError as error:
                refused = refused or error
    raise refused or UsageError(
        f"{path} does not hold the inputs of the model itself: dump all modules, or give inputs"
    )


def _last_calls(keys: list[Key], root: str, number: int) -> dict[Key, str]:
    """Keys of what modules returned in one call of the model, and the paths of the modules.

    A dump is in the order of execution; of several calls of a module the last counts.
    """
    begin, end = (root, number, "I"), (root, number, "O")
    if begin in keys and end in keys:
        keys = keys[keys.index(begin) : keys.index(end) + 1]
    last = {str(key[0]): key for key in keys if key[2] == "O"}
    return {key: name for name, key in last.items()}


def _placed(names: Mapping[Key, str], root: str, aligned: Mapping[str, Origin]) -> dict[Key, str]:
    """Paths of modules: without the name that the model had, or as they are if that fits."""
    shift = len(root) + 1 if root else 0
    within = {key: name[shift:] for key, name in names.items()}
    wanted = {origin.key for origin in aligned.values()}
    kept, cut = (len(wanted & set(one.values())) for one in (names, within))
    return dict(names) if kept > cut else within


def _tensors(value: Any) -> list[torch.Tensor]:
    return [leaf for _, leaf in flatten(value)[0] if isinstance(leaf, torch.Tensor)]


def keep_values(
    model: ir.Model, feeds: Mapping[str, torch.Tensor], runner: Runner, path: Path
) -> None:
    """Write every value that a model computes to a dump, with its inputs.

    Args:
        model: an ONNX model.
        feeds: its inputs.
        runner: at which level, on which providers.
        path: ``NAME.safetensors``, or a folder, new or empty.

    Raises:
        UsageError: it cannot be written.
        RunError: onnxruntime cannot run the model.
    """
    given = {name: ort_value(tensor) for name, tensor in feeds.items()}
    with open_dump(path) as dump:
        dump.add(("", 0, "I"), ((), dict(feeds)))
        for name, tensor in trace_onnx(model, given, runner=runner):
            dump.add((name, 0, _VALUE), tensor)
