"""How far two values may be apart: one formula, with the limits of outputs and of inner values."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch.nn.parameter import is_lazy

from torchferry.values.discrepancy import Discrepancy
from torchferry.values.flatten import flatten

__all__ = ["Limits", "Tolerance"]

# By dtype: atol and rtol. Of a whole model's outputs, in which the rounding of many operators
# adds up; and of one value, what a few operators lose and far less than a fault makes.
_OUTPUTS = {
    torch.float64: (1e-7, 1e-9),
    torch.float32: (1e-4, 1e-5),
    torch.float16: (1e-2, 5e-3),
    torch.bfloat16: (4e-2, 4e-2),
}
_VALUES = {
    torch.float64: (1e-9, 1e-9),
    torch.float32: (5e-5, 5e-5),
    torch.float16: (5e-3, 5e-3),
    torch.bfloat16: (3e-2, 3e-2),
}
_COARSE = (torch.float16, torch.bfloat16)


@dataclass(frozen=True)
class Tolerance:
    """How much a value may differ: `export` and ``torchferry.testing`` take it as ``tolerance``.

    It passes when its largest absolute difference is at most
    ``atol * min(1, scale) + rtol * scale``, where ``scale`` is the largest magnitude expected:
    values of order 1 may differ by about ``atol``, small ones by proportionally less, and large
    ones by their rounding. Integers and booleans must be equal. Values next to the largest of
    their type are taken for masks and do not count for the scale.

    Attributes:
        atol: absolute, for values of order 1.
        rtol: relative to the largest expected magnitude.
        least: the scale counts as at least this; what is smaller everywhere is noise around zero.
        share: a difference of more than this share of the scale itself never passes.
        basis: where the limits come from: the name of a dtype; empty when a user sets them.

    ``atol`` and ``least`` are in the unit of the values, ``rtol`` and ``share`` have none.

    >>> tolerance = Tolerance(atol=1e-3, rtol=1e-4)
    >>> tolerance.limit(scale=0.5), tolerance.limit(scale=100.0)
    (0.00055, 0.011)
    >>> tolerance.allows(Discrepancy(abs=0.01, scale=100.0))
    True
    """

    atol: float
    rtol: float
    least: float = 0.01
    share: float = 0.1
    basis: str = field(default="", repr=False, compare=False)

    @classmethod
    def of(cls, *dtypes: torch.dtype | None) -> Tolerance:
        """The default for the outputs of a model that computes in these dtypes.

        >>> Tolerance.of(torch.float32)
        Tolerance(atol=0.0001, rtol=1e-05, least=0.01, share=0.1)
        """
        (atol, rtol), basis = _coarsest(_OUTPUTS, dtypes)
        return cls(atol, rtol, basis=basis)

    @classmethod
    def inside(cls, *dtypes: torch.dtype | None) -> Tolerance:
        """The default for one value within a model, where these dtypes come together.

        >>> Tolerance.inside(torch.float32, torch.float16).atol
        0.005
        """
        (atol, rtol), basis = _coarsest(_VALUES, dtypes)
        return cls(atol, rtol, least=1e-4, share=math.inf, basis=basis)

    @classmethod
    def usual(cls, model: torch.nn.Module, inputs: Any = ()) -> Tolerance:
        """The default for a model, by the dtype that most of its weights have, or else its inputs.

        >>> Tolerance.usual(torch.nn.Linear(2, 2).half()).basis
        'float16'
        """
        # A lazy module that no call reached has weights without a size.
        tensors = [one for one in (*model.parameters(), *model.buffers()) if not is_lazy(one)]
        given = [leaf for _, leaf in flatten(inputs)[0] if isinstance(leaf, torch.Tensor)]
        for some in (tensors, given):
            sizes = Counter[torch.dtype]()
            for one in some:
                if one.is_floating_point():
                    sizes[one.dtype] += one.numel()
            if sizes:
                return cls.of(sizes.most_common(1)[0][0])
        return cls.of(torch.float32)

    def widened(self, dtype: torch.dtype | None) -> Tolerance:
        """As much as an output of a coarse dtype may differ, if more and no user sets limits."""
        own = Tolerance.of(dtype)
        if (
            not self.basis
            or dtype not in _COARSE
            or (own.atol <= self.atol and own.rtol <= self.rtol)
        ):
            return self
        limits = max(self.atol, own.atol), max(self.rtol, own.rtol)
        return replace(self, atol=limits[0], rtol=limits[1], basis=own.basis)

    def limit(self, scale: float) -> float:
        """The largest absolute difference that passes at a scale."""
        scale = max(scale, self.least)
        return self.atol * min(1.0, scale) + self.rtol * scale

    def allows(self, difference: Discrepancy, expected: Any = None, *, times: float = 1) -> bool:
        """Whether a value passes.

        Args:
            difference: between the two sides.
            expected: the value that is right, whose dtype may be exact.
            times: how often the limit may be reached.

        Text, structure, shape and dtype must be equal: ``difference.reason`` is then ``None``.

        >>> Tolerance(1.0, 1.0).allows(Discrepancy(abs=1.0, scale=3.0), torch.tensor(3))
        False
        """
        if difference.reason is not None or difference.dnan:
            return False
        dtype = expected.dtype if isinstance(expected, torch.Tensor) else None
        if dtype is not None and not (dtype.is_floating_point or dtype.is_complex):
            return difference.abs == 0
        coarse = difference.scale > 0 and difference.abs > self.share * difference.scale
        return difference.abs <= times * self.limit(difference.scale) and not coarse


@dataclass(frozen=True)
class Limits:
    """Limits that a user sets, each for itself; the same questions as of a `Tolerance`.

    Attributes:
        atol: largest absolute difference that passes; any when ``None``.
        rtol: largest relative difference, as `Discrepancy` has it; any when ``None``.
    """

    atol: float | None = None
    rtol: float | None = None
    basis: str = ""

    def widened(self, dtype: torch.dtype | None) -> Limits:
        """The same: what a user sets holds for any dtype."""
        del dtype
        return self

    def limit(self, scale: float) -> float:
        """The largest absolute difference that passes at a scale."""
        limits = self.atol, None if self.rtol is None else self.rtol * scale
        return min((one for one in limits if one is not None), default=math.inf)

    def allows(self, difference: Discrepancy, expected: Any = None, *, times: float = 1) -> bool:
        """Whether a value passes; see `Tolerance.allows`."""
        del expected
        if difference.reason is not None or difference.dnan:
            return False
        return (self.atol is None or difference.abs <= times * self.atol) and (
            self.rtol is None or difference.rel <= times * self.rtol
        )


def _coarsest(
    table: dict[torch.dtype, tuple[float, float]], dtypes: tuple[torch.dtype | None, ...]
) -> tuple[tuple[float, float], str]:
    """The limits for the dtype of least precision, and its name; float32 when none is known."""
    known = [dtype if dtype in table else torch.float32 for dtype in dtypes if dtype is not None]
    coarsest = max(known, key=table.__getitem__, default=torch.float32)
    return table[coarsest], str(coarsest).removeprefix("torch.")
