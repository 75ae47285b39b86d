"""What an exporter made of a module, and what all exporters need."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import onnx_ir as ir
import torch

from torchferry.capturer import Fixed, accept_aliases
from torchferry.diagnoser.record.tree import Piece
from torchferry.graph import io
from torchferry.observer.observation import Call, Observation
from torchferry.optimizer import widen
from torchferry.runner.kernels import nodes_without_kernel
from torchferry.values.flatten import flatten

__all__ = [
    "Attempted", "Exporter", "Options", "arguments_of", "as_module", "fit_to_run", "save_to_run",
    "tensors_of", "unexportable", "without",
]  # fmt: skip

_INPUTS = (torch.Tensor, bool, int, float, str, type(None), torch.nn.Module)

Run = Callable[[Call], Any]


@dataclass(frozen=True)
class Attempted:
    """A module that was exported.

    Attributes:
        exported: what the exporter made.
        run: runs it on the inputs of a call; gives the nested outputs, or their tensors in a list.
        run_freely: the same without the guards torch.export adds to a program.
        line_at_fault: the user's line from which the program of torch.export computes something
            else on a call than the module does; see `line_of_difference`.
        flat: whether it gives a list of tensors.
        fixed: dimensions that had to be dynamic and are constants in it.
        decided: the user's line whose way the values of the example decided for good; empty
            where the line is not known, None when there is no such choice.
        inside: ``id`` of the modules that were being called as that line ran.
        dynamic_shapes: what was given to the exporter.
    """

    exported: Any
    run: Run
    run_freely: Run | None = None
    line_at_fault: Callable[[Call], str | None] | None = None
    flat: bool = False
    fixed: tuple[Fixed, ...] = ()
    decided: str | None = None
    inside: frozenset[int] = frozenset()
    dynamic_shapes: Any = None

    @property
    def title(self) -> str:
        """The class of what was made; bytes are an ONNX file."""
        return "ModelProto" if isinstance(self.exported, bytes) else type(self.exported).__name__


Options = Mapping[str, Any]
Exporter = Callable[[torch.nn.Module, Observation, Options], Attempted]


def as_module(
    piece: Piece, held: Mapping[str, Any] | None = None, *, flat: bool = False
) -> torch.nn.Module:
    """What exporters are given for a piece: its module, or one that runs what is recorded of it.

    Args:
        piece: with its calls, which say what is given by position.
        held: arguments that are no inputs; see `unexportable`.
        flat: whether it shall return the tensors alone, where there is something else.

    >>> class Coder(torch.nn.Module):
    ...     def encode(self, x):
    ...         return x + 1
    >>> as_module(Piece(None, "coder", Coder(), method_name="encode"))(torch.zeros(1))
    tensor([1.])
    """
    flat = flat and any(_holds_more(call.outputs) for call in piece.calls)
    flat = flat and all(tensors_of(call.outputs) for call in piece.calls)
    if piece.entry == "forward" and not held and not flat:
        return piece.model
    return _Entry(piece, held or {}, flat=flat)


def _holds_more(outputs: Any) -> bool:
    """Whether there is more in outputs than tensors, as numbers that the caller goes on with."""
    return any(not isinstance(leaf, torch.Tensor | None) for _, leaf in flatten(outputs)[0])


class _Entry(torch.nn.Module):
    """A method of a module as a module, or one with the hooks around it, or with less to it."""

    def __init__(self, piece: Piece, held: Mapping[str, Any], *, flat: bool) -> None:
        super().__init__()
        self.module = piece.model
        self.training = piece.model.training  # the parts have modes of their own

        def forward(*args: Any, **kwargs: Any) -> Any:
            outputs = piece.run(*args, **kwargs, **held)
            return tensors_of(outputs) if flat else outputs

        # Exporters read the signature here.
        vars(forward)["__signature__"] = without(piece.signature, held)
        self.forward = forward


def unexportable(kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """The named arguments that torch.export takes no inputs of, as a device.

    All calls that one graph serves have the same, so they are a part of the module.

    >>> unexportable({"x": torch.zeros(2), "n": 3, "device": torch.device("cpu")})
    {'device': device(type='cpu')}
    """
    found = {}
    for name, value in kwargs.items():
        leaves = [leaf for _, leaf in flatten(value)[0]]
        tensors = any(isinstance(leaf, torch.Tensor) for leaf in leaves)
        if not tensors and not all(isinstance(leaf, _INPUTS) for leaf in leaves):
            found[name] = value
    return found


def without(signature: inspect.Signature, names: Collection[str]) -> inspect.Signature:
    """A signature with fewer parameters; the others can be given by name."""
    kept = [one for name, one in signature.parameters.items() if name not in names]
    return signature.replace(parameters=kept if not names else [_named(one) for one in kept])


def _named(one: inspect.Parameter) -> inspect.Parameter:
    by_place = one.kind is one.POSITIONAL_OR_KEYWORD
    return one.replace(kind=one.KEYWORD_ONLY) if by_place else one


def tensors_of(value: Any, count: int | None = None) -> list[torch.Tensor]:
    """The tensors of a nested value, in order; an ONNX graph gives nothing else.

    Args:
        value: nested.
        count: how many a graph gives: it may have tensors for numbers too, as for sizes.

    >>> tensors_of({"y": torch.zeros(1), "n": None})
    [tensor([0.])]
    >>> tensors_of({"y": torch.zeros(1), "n": 3}, count=2)
    [tensor([0.]), tensor(3)]
    """
    leaves = [leaf for _, leaf in flatten(value)[0]]
    tensors = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]
    known = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor | bool | int | float)]
    return [*map(torch.as_tensor, known)] if count == len(known) else tensors


def arguments_of(
    model: torch.nn.Module, seen: Observation, call: Call
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments of a call as the exporters of PyTorch take them."""
    args, kwargs = seen.normalized(call)
    return args, accept_aliases(model, kwargs)


def fit_to_run(model: ir.Model) -> None:
    """Let a model compute in float32 what onnxruntime has no bfloat16 kernel for, in place."""
    widen(nodes_without_kernel(model, ir.DataType.BFLOAT16))


def save_to_run(model: ir.Model, folder: str) -> Path:
    """Write a model so that onnxruntime can run it; see `fit_to_run`.

    Args:
        model: changed in place where that is needed.
        folder: an empty one.
    """
    fit_to_run(model)
    path = Path(folder) / "model.onnx"
    io.save(model, path)
    return path
