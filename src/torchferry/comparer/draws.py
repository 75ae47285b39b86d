"""Whether what two sides draw at random may come from one distribution."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import fx

from torchferry.values.difference import Discrepancy

__all__ = ["Bounds", "bounds_of", "may_be_drawn"]

Bounds = tuple[float, float]

aten = torch.ops.aten

_FREE: Bounds = (-math.inf, math.inf)
_UNIT: Bounds = (0.0, 1.0)
# Operators that draw each element by itself, and between what.
_BOUNDS: dict[object, Bounds] = {
    aten.bernoulli: _UNIT, aten.dropout: _FREE, aten.native_dropout: _FREE, aten.normal: _FREE,
    aten.rand: _UNIT, aten.rand_like: _UNIT, aten.randint: _FREE, aten.randint_like: _FREE,
    aten.randn: _FREE, aten.randn_like: _FREE, aten.uniform: _FREE,
}  # fmt: skip
_APART = 6.0  # of a fair sum, in its own size: exceeded in less than 1 of 10,000,000 cases


def bounds_of(node: fx.Node) -> Bounds | None:
    """Between what a node draws; ``None`` unless it draws each element by itself."""
    return _BOUNDS.get(getattr(node.target, "overloadpacket", None))


def may_be_drawn(
    expected: torch.Tensor,
    got: torch.Tensor,
    bounds: Bounds,
    allows: Callable[[torch.Tensor, Discrepancy], bool],
) -> bool:
    """Whether two tensors of one shape may be draws of the same.

    If they are, the difference of each element is as likely to be negative as positive, and so is
    that of the squares: sums of those exceed t times the root of the sum of their squares in at
    most ``2 * exp(-t * t / 2)`` of all cases (Efron, "Student's t-test under symmetry
    conditions", 1969), whatever the distributions. Less than 37 elements never do.

    Args:
        expected: the reference's draw.
        got: the other's.
        bounds: between what elements may be.
        allows: whether means pass, whatever the rest.

    >>> right = torch.zeros(40)
    >>> may_be_drawn(right, right + 1, (-math.inf, math.inf), lambda *_: False)
    False
    >>> may_be_drawn(right[:9], right[:9] + 1, (-math.inf, math.inf), lambda *_: False)
    True
    """
    if expected.is_complex():
        expected = torch.view_as_real(expected.resolve_conj())
    one, other = (tensor.detach().cpu().double().flatten() for tensor in (expected, got))
    if bounds != _FREE and not bool(((other >= bounds[0]) & (other <= bounds[1])).all()):
        return False
    finite = one.isfinite() & other.isfinite()
    return all(
        _fair(*pair, allows)
        for pair in ((one[finite], other[finite]), (one[finite] ** 2, other[finite] ** 2))
    )


def _fair(
    one: torch.Tensor,
    other: torch.Tensor,
    allows: Callable[[torch.Tensor, Discrepancy], bool],
) -> bool:
    apart = other - one
    if float(apart.sum().abs()) <= _APART * float(apart.norm()):
        return True
    means = Discrepancy(abs=float(apart.mean().abs()), scale=float(one.abs().mean()))
    return allows(one.float(), means)  # rounding of one kind is no other distribution
