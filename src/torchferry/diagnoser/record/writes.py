"""What a module writes to that an ONNX graph does not keep: its buffers, and what it was given.

`to_onnx` refuses such programs itself. ``torch.onnx.export`` writes a file that is right in its
first call and computes on with what the state was at the export in all others.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from torchferry.diagnoser.explain.blame import advice_for, with_code
from torchferry.diagnoser.record.tree import Piece, Record
from torchferry.diagnoser.trial.made import Attempted
from torchferry.diagnoser.trial.quiet import modules_here
from torchferry.diagnoser.trial.status import StatusExport, StatusExportCode
from torchferry.observer.tree import leaves_of
from torchferry.seams.pytorch import TorchDispatchMode, buffers_of, parameters_of, schema_of
from torchferry.values.buffers import buffers_kept
from torchferry.values.clone import clone
from torchferry.values.fast_path import disable_fast_paths
from torchferry.values.flatten import flatten
from torchferry.values.randomness import random_kept
from torchferry.values.source_line import line_here

__all__ = ["lost_writes"]

_NORMS = (torch.ops.aten.native_batch_norm.default, torch.ops.aten.cudnn_batch_norm.default)
"""Their schemas do not say that they update the statistics (arguments 3, 4) when they train."""


def lost_writes(piece: Piece, call: Record, made: Attempted) -> StatusExport | None:
    """Run a piece once more, and see whether an ONNX file of it loses something it writes.

    Writes to what was made on the way are kept, and so are those to an input that is returned as
    well. What a part of a model writes to its inputs is in the file of the whole: there only
    its buffers, parameters and other tensors of modules count.

    Args:
        piece: with its calls.
        call: one of them.
        made: its file.

    Returns:
        Why the file is wrong; None when it is not.
    """
    args, kwargs = clone((call.args, call.kwargs))
    owned = dict(_owned(piece.model))
    given = {} if piece.parent else _given(*piece.normalized(args, kwargs))
    watch = _Writes({**given, **owned})
    with random_kept(), buffers_kept(piece.model), disable_fast_paths(), torch.no_grad():
        with watch:
            outputs = piece.run(*args, **kwargs)
        for name, now in _owned(piece.model):
            if name in owned and now is not owned[name]:  # ``self.mean = self.mean + x``
                watch.found.setdefault(name, (None, frozenset()))
    returned = {_span(leaf) for _, leaf in flatten(outputs)[0] if isinstance(leaf, torch.Tensor)}
    lost = {
        name: place
        for name, place in watch.found.items()
        if name in owned or _span(given[name]) not in returned
    }
    return _refused(piece.model, lost, made) if lost else None


def _refused(
    model: torch.nn.Module, lost: dict[str, tuple[str | None, frozenset[int]]], made: Attempted
) -> StatusExport:
    line, inside = next(iter(lost.values()))
    *_, path = ("", *(path for path, module in model.named_modules() if id(module) in inside))
    where = "" if line or not path else f" in {path} ({type(model.get_submodule(path)).__name__})"
    text = f"forward writes to {', '.join(lost)}{where}: an ONNX graph has no state, it is lost"
    training = any(name.endswith("num_batches_tracked") for name in lost)
    # A second call may show it; what is moved in training is not read there.
    shown = not training and any(not name.startswith("input ") for name in lost)
    return StatusExport(
        StatusExportCode.FAIL_DISC if shown else StatusExportCode.FAIL,
        "DISC" if shown else "EXPORT",
        text,
        line=with_code(line) if line else None,
        advice=advice_for("call model.eval()" if training else text),
        inside=inside,
        dynamic_shapes=made.dynamic_shapes,
        unsteady=shown,
    )


def _owned(model: torch.nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    """The tensors that modules keep from call to call, by what and where they are."""
    for path, module in model.named_modules():
        kinds = (("buffer", buffers_of(module)), ("parameter", parameters_of(module)),
                 ("tensor", vars(module)))  # fmt: skip
        for kind, values in kinds:
            for name, value in values.items():
                if isinstance(value, torch.Tensor):
                    yield f"{kind} {path}.{name}" if path else f"{kind} {name}", value


def _given(args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, torch.Tensor]:
    """The tensors among the arguments, which have names here."""
    return {
        f"input {'.'.join(map(str, path))}": leaf
        for path, leaf in leaves_of(args, kwargs).items()
        if isinstance(leaf, torch.Tensor)
    }


def _memory(tensor: torch.Tensor) -> int | None:
    """The address of a tensor's storage; None where it has none, as with no elements."""
    if tensor.layout is not torch.strided or type(tensor) not in _PLAIN:
        return None
    return tensor.untyped_storage().data_ptr() or None


_PLAIN = (torch.Tensor, torch.nn.Parameter, torch.nn.Buffer)


def _span(tensor: torch.Tensor) -> tuple[Any, ...]:
    """What is equal for two tensors that are the same part of one memory."""
    return _memory(tensor), tensor.storage_offset(), tuple(tensor.shape), tensor.stride()


class _Writes(TorchDispatchMode):  # type: ignore[no-untyped-call]  # modes have no annotations
    """Notes where operators write to the memory of some tensors.

    Attributes:
        found: by the name of a tensor, the user's line and the ``id`` of the modules being called.
    """

    def __init__(self, named: dict[str, torch.Tensor]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # as above
        self.named: dict[int, str] = {}
        for name, tensor in named.items():
            memory = _memory(tensor)
            if memory is not None:
                self.named.setdefault(memory, name)
        self.found: dict[str, tuple[str | None, frozenset[int]]] = {}

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        """Run the operator, and keep the line when it writes."""
        for tensor in _written(func, args, kwargs or {}):
            name = self.named.get(_memory(tensor) or 0)
            if name is not None and name not in self.found:
                self.found[name] = line_here(), modules_here()
        return func(*args, **(kwargs or {}))


def _written(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Iterator[torch.Tensor]:
    if func in _NORMS and args[5]:
        yield from (arg for arg in args[3:5] if isinstance(arg, torch.Tensor))
    if not schema_of(func).is_mutable or func is torch.ops.aten.detach_.default:
        return
    for index, argument in enumerate(schema_of(func).arguments):
        if argument.alias_info is not None and argument.alias_info.is_write:
            given = args[index] if index < len(args) else kwargs.get(argument.name)
            for value in given if isinstance(given, list | tuple) else [given]:
                if isinstance(value, torch.Tensor):
                    yield value
