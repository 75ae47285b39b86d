"""Weights in the place of those of layers that are not run: products with them take little time.

A layer that was shown to be the same as another runs for its code alone, in the module and in the
program. Any function may stand there in the place of a product with a weight if it is the same on
both sides, hangs on all that it is given, and is another one for each weight.
"""

from __future__ import annotations

import zlib
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.nn.functional import pad

from torchferry.seams.pytorch import TorchDispatchMode

__all__ = ["StandIns", "product_weights"]

aten = torch.ops.aten
# Where an operator takes a matrix that it multiplies with, in a program and as it is dispatched.
_WRITTEN: dict[Any, int] = {aten.linear.default: 1, aten.matmul.default: 1, aten.mm.default: 1,
                            aten.addmm.default: 2}  # fmt: skip
_DISPATCHED: dict[Any, int] = {aten.mm.default: 1, aten.addmm.default: 2}


def product_weights(program: ExportedProgram) -> set[str]:
    """Names of the weights that are used in products with one matrix, and nowhere else."""
    placed = program.graph.find_nodes(op="placeholder")
    specs = program.graph_signature.input_specs
    weights = ((node, str(spec.target)) for node, spec in zip(placed, specs, strict=True))
    held = {**program.state_dict, **program.constants}
    return {
        name
        for node, name in weights
        if name in held and held[name].ndim == 2 and held[name].is_floating_point()
        if node.users and all(_multiplies(user, node) for user in node.users)
    }


def _multiplies(user: torch.fx.Node, weight: torch.fx.Node) -> bool:
    place = _WRITTEN.get(user.target) if user.op == "call_function" else None
    return (
        place is not None
        and user.args[place] is weight
        and [*user.all_input_nodes].count(weight) == sum(one is weight for one in user.args) == 1
    )


class StandIns(TorchDispatchMode):  # type: ignore[no-untyped-call]  # modes have no annotations
    """Makes weights that take no memory; while it is active, products with them are cheap."""

    supports_higher_order_operators = True

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # as above
        self._made: dict[str, torch.Tensor] = {}
        self._seeds: dict[int, int] = {}

    def stand_in(self, name: str, weight: torch.Tensor) -> torch.Tensor:
        """A tensor of the shape and dtype of a weight, the same for a name each time."""
        if name not in self._made:
            value = torch.full((1, 1), weight.shape[1] ** -0.5, dtype=weight.dtype)
            self._made[name] = value.expand(weight.shape)
            self._seeds[value.data_ptr()] = zlib.crc32(name.encode())
        return self._made[name]

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        """Run the operator, or what stands in the place of a product."""
        place = 0 if kwargs else _DISPATCHED.get(func, 0)
        matrix = args[place] if place else None
        if not isinstance(matrix, torch.Tensor) or matrix.data_ptr() not in self._seeds:
            return func(*args, **(kwargs or {}))
        found = _mixed(args[place - 1], matrix.shape[1], self._seeds[matrix.data_ptr()])
        return found if place == 1 else args[0] + found


def _mixed(rows: torch.Tensor, width: int, seed: int) -> torch.Tensor:
    """Rows of another width: numbers of each row with random signs, repeated, or summed up.

    >>> _mixed(torch.ones(2, 3), 5, 0).abs()
    tensor([[1., 1., 1., 1., 1.],
            [1., 1., 1., 1., 1.]])
    >>> _mixed(torch.ones(1, 5), 3, 0).shape
    torch.Size([1, 3])
    """
    count, given = rows.shape
    times = -(-max(given, width) // min(given, width))
    generator = torch.Generator().manual_seed(seed)
    signs = torch.randint(0, 2, (given + width,), generator=generator).mul(2).sub(1)
    signs = signs.to(rows.dtype)
    mixed = rows * signs[:given]
    if given > width:
        folded = pad(mixed, (0, times * width - given)).view(count, times, width)
        mixed = folded.sum(1) * times**-0.5
    else:
        mixed = mixed.repeat(1, times)[:, :width]
    return mixed * signs[given:]
