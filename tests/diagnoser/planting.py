"""Put a fault into one submodule of a working model; what the tests and the benchmark share.

Each line at fault carries a mark with the fault's name, so that it can be told which line
`diagnose` has to name.
"""

from __future__ import annotations

import functools
import operator
import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.fx.experimental.symbolic_shapes import optimization_hint

from torchferry.capturer import accept_aliases
from torchferry.diagnoser.record.recorder import recorded
from torchferry.diagnoser.record.tree import Piece, build_tree
from torchferry.values import clone
from torchferry.values.flatten import flatten, unflatten

__all__ = ["FAULTS", "Fault", "is_named", "lines", "place_for", "plant"]

LIBRARY = torch.library.Library("torchferry_planted", "FRAGMENT")
LIBRARY.define("opaque(Tensor x) -> Tensor")


@functools.partial(LIBRARY.impl, "opaque", dispatch_key="CPU")
def opaque(x: torch.Tensor) -> torch.Tensor:
    """An operator of which PyTorch does not know what it returns."""
    return x.clone()


def data_dependent_if(module: nn.Module, x: torch.Tensor) -> None:
    """A branch that the values decide."""
    if x.sum() > 1e30:  # fault: data_dependent_if
        x.add_(1)


def graph_break(module: nn.Module, x: torch.Tensor) -> None:
    """What no tracer follows."""
    x.untyped_storage().data_ptr()  # fault: graph_break


def unsupported_op(module: nn.Module, x: torch.Tensor) -> None:
    """An operator without a fake implementation."""
    torch.ops.torchferry_planted.opaque(x)  # fault: unsupported_op


def specialised_dim(module: nn.Module, x: torch.Tensor) -> None:
    """A size that becomes a number."""
    torch.zeros(operator.index(x.shape[0]))  # fault: specialised_dim


def write_on_a_view(module: nn.Module, x: torch.Tensor) -> None:
    """An in-place write into a part of a buffer."""
    module.planted[1:].add_(1)


def wrong_constant(module: nn.Module, x: torch.Tensor) -> torch.Tensor:
    """Right at the size that was traced, wrong at others; nothing is raised anywhere."""
    rows = optimization_hint(x.shape[0])
    return x + torch.cos(3 * x) * rows  # no normalization takes it away again


@dataclass(frozen=True)
class Fault:
    """One kind.

    Attributes:
        plant: what the module does more; given its first output when ``on_output``, else its
            first tensor argument.
        exporter: the one that cannot take it.
        on_output: whether it changes what the module returns.
    """

    plant: Callable[[nn.Module, torch.Tensor], torch.Tensor | None]
    exporter: str = "fx"
    on_output: bool = False


FAULTS = {
    "data_dependent_if": Fault(data_dependent_if),
    "graph_break": Fault(graph_break),
    "unsupported_op": Fault(unsupported_op),
    "specialised_dim": Fault(specialised_dim),
    "write_on_a_view": Fault(write_on_a_view, "to_onnx"),
    "wrong_constant": Fault(wrong_constant, on_output=True),
}


def lines() -> dict[str, int]:
    """Where each fault stands in this file."""
    found = {}
    for number, line in enumerate(Path(__file__).read_text("utf-8").splitlines(), 1):
        _, _, name = line.partition("  # fault" + ": ")
        if name:
            found[name.split()[0]] = number
    return found


def is_named(fault: str, line: str | None) -> bool:
    """Whether ``file:line: code`` is the line of a fault."""
    return line is not None and f"{Path(__file__).name}:{lines()[fault]}:" in line


def plant(module: nn.Module, fault: str) -> None:
    """Let a module do something more each time it is called."""
    original = module.forward
    module.register_buffer("planted", torch.zeros(3))
    kind = FAULTS[fault]

    @functools.wraps(original)
    def forward(*args: Any, **kwargs: Any) -> Any:
        # A graph remembers lines of forward only: of what forward calls, the line that calls it.
        if kind.on_output:
            change, outputs = functools.partial(kind.plant, module), original(*args, **kwargs)
            return _changed(outputs, change)  # fault: wrong_constant
        x = next(x for x in (*args, *kwargs.values()) if isinstance(x, torch.Tensor) and x.ndim)
        kind.plant(module, x)  # fault: write_on_a_view
        return original(*args, **kwargs)

    module.forward = forward


def _changed(value: Any, change: Callable[[torch.Tensor], torch.Tensor | None]) -> Any:
    """A nested value with its first floating-point tensor changed."""
    leaves, structure = flatten(value)
    values = [leaf for _, leaf in leaves]
    first = next(i for i, leaf in enumerate(values) if _is_floating(leaf))
    values[first] = change(values[first])
    return unflatten(values, structure)


def _is_floating(leaf: Any) -> bool:
    return isinstance(leaf, torch.Tensor) and leaf.ndim > 0 and leaf.is_floating_point()


def place_for(model: nn.Module, inputs: Mapping[str, Any], draw: random.Random) -> str:
    """The path of a random submodule that a fault can be planted in."""
    return draw.choice(sorted({piece.path for piece in _places(model, inputs)}))


def _places(model: nn.Module, inputs: Mapping[str, Any]) -> Iterator[Piece]:
    """Submodules that take and give floating-point tensors with a batch in front."""
    root = build_tree(Piece, model)
    batch = len(next(v for v in inputs.values() if isinstance(v, torch.Tensor)))
    with recorded(root), torch.no_grad():
        model(**accept_aliases(model, clone(dict(inputs))))
    for piece in root.walk():
        for call in piece.calls[:1]:
            given = [*call.args, *call.kwargs.values()]
            firsts = [
                next((g for g in given if isinstance(g, torch.Tensor) and g.ndim), None),
                next((leaf for _, leaf in flatten(call.outputs)[0] if _is_floating(leaf)), None),
            ]
            if all(_is_floating(first) and len(first) == batch for first in firsts):
                yield piece
