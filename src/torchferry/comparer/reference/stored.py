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

from torchferry.comparer.align.align import Origin, align_modules, in_order, output_places
from torchferry.comparer.align.provenance import all_scopes
from torchferry.comparer.reference.reference import Reference
from torchferry.comparer.run.feeds import model_feeds
from torchferry.comparer.run.piece import Runner, ort_value
from torchferry.comparer.run.trace import trace_onnx
from torchferry.dumper import Key, open_dump
from torchferry.dumper.document import DOCUMENT
from torchferry.dumper.store import read_entries
from torchferry.errors import UsageError
from torchferry.graph import io
from torchferry.observer.naming import output_name
from torchferry.values.difference import max_diff
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
        given: the arguments; of several calls, the one with these.

    Raises:
        UsageError: it is no dump, holds the calls of several models, or no inputs that fit.
    """
    held = _held(path)
    inner = {str(v.name) for node in onnx.graph for v in node.outputs}
    stems: dict[Key, str] = {
        key: str(key[0]) for key in held if key[2] == _VALUE and key[0] in inner
    }
    aligned: dict[str, Origin] = {}
    if stems:
        _, feeds = _inputs(path, "", onnx, given)
        origins = {name: Origin(name, "name") for name in stems.values()}
    else:
        root = _root(path, held)
        shift = _shift(root, held, all_scopes(onnx.graph))
        number, feeds = _inputs(path, root if shift == len(root) else None, onnx, given)
        last = _last_calls(list(held), root, number)
        stems = {key: name[shift + 1 if shift else 0 :] for key, name in last.items()}
        single = {stem for key, stem in stems.items() if len(held[key]) == 1}
        names = next((held[key] for key, stem in stems.items() if not stem), ())
        places = output_places(onnx.graph, names)
        aligned = align_modules(onnx.graph, stems.values(), places)
        known = single | {f"output:{place}" for place in range(len(names))}
        origins = {n: origin for n, origin in aligned.items() if origin.key in known}

    def values(wanted: Collection[str]) -> Iterator[tuple[str, torch.Tensor]]:
        for key, value in read_entries(path):
            if key in stems:
                for index, tensor in enumerate(_tensors(value)):
                    name = stems[key] or f"output:{index}"
                    if name in wanted:
                        yield name, tensor

    found = in_order(origins, onnx.graph)
    whole = any(origin.how == "output" for origin in found.values()) or not aligned
    return feeds, Reference(values, found, whole=whole)


def _held(path: Path) -> dict[Key, tuple[str, ...]]:
    """The values of a dump, with what exporters call the tensors in each."""
    return {
        key: _names(value)
        for key, value in read_entries(path)
        if isinstance(key, tuple) and len(key) == _PARTS
    }


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
    path: Path, root: str | None, onnx: ir.Model, given: Call | None
) -> tuple[int, dict[str, torch.Tensor]]:
    """The number of the first call that the ONNX model takes, and its tensors.

    Args:
        path: the dump.
        root: the model's name there; ``None`` if only parts of it were dumped.
        onnx: the ONNX model.
        given: arguments, which that call is to have.
    """
    wanted = None if given is None else model_feeds(onnx, *given)
    refused: UsageError | None = None
    others = False
    for key, value in read_entries(path):
        if isinstance(key, tuple) and (key[0], key[-1]) == (root, "I"):
            try:
                feeds = model_feeds(onnx, *value)
            except UsageError as error:
                refused = refused or error
                continue
            if wanted is None or _same(feeds, wanted):
                return int(key[1]), feeds
            others = True
    if others:
        raise UsageError(
            f"{path} holds what the model computed on other inputs than those that were given: "
            "leave inputs out, or dump a run on these"
        )
    if wanted is not None and refused is None:
        return 0, wanted
    raise refused or UsageError(
        f"{path} does not hold the inputs of the model itself: dump all modules, or give inputs"
    )


def _same(one: Mapping[str, torch.Tensor], other: Mapping[str, torch.Tensor]) -> bool:
    found = max_diff(dict(one), dict(other))
    return found.abs == 0 and found.dnan == 0 and found.reason is None


def _last_calls(keys: list[Key], root: str, number: int) -> dict[Key, str]:
    """Keys of what modules returned in one call of the model, and the paths of the modules.

    A dump is in the order of execution; of several calls of a module the last counts.
    """
    begin, end = (root, number, "I"), (root, number, "O")
    if begin in keys and end in keys:
        keys = keys[keys.index(begin) : keys.index(end) + 1]
    last = {str(key[0]): key for key in keys if key[2] == "O"}
    return {key: name for name, key in last.items()}


def _shift(root: str, keys: Collection[Key], wanted: set[str]) -> int:
    """How much of the names is the name that the model had: nothing if they fit as they are."""
    names = {str(key[0]) for key in keys}
    cut = {name[len(root) + 1 :] for name in names}
    return 0 if len(names & wanted) > len(cut & wanted) else len(root)


def _names(value: Any) -> tuple[str, ...]:
    leaves, _ = flatten(value)
    return tuple(output_name(path) for path, leaf in leaves if isinstance(leaf, torch.Tensor))


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
