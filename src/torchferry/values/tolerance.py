"""How far two values may be apart: one formula, with the limits of outputs and of inner values."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import torch

from torchferry.values.discrepancy import Discrepancy

__all__ = ["Tolerance"]

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
    """How much a value may differ.

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
    """

    atol: float
    rtol: float
    least: float = 0.01
    share: float = 0.1

    @classmethod
    def of(cls, *dtypes: torch.dtype | None) -> Tolerance:
        """The default for the outputs of a model that computes in these dtypes.

        >>> Tolerance.of(torch.float32)
        Tolerance(atol=0.0001, rtol=1e-05, least=0.01, share=0.1)
        """
        return cls(*_coarsest(_OUTPUTS, dtypes))

    @classmethod
    def inside(cls, *dtypes: torch.dtype | None) -> Tolerance:
        """The default for one value within a model, where these dtypes come together.

        >>> Tolerance.inside(torch.float32, torch.float16).atol
        0.005
        """
        return cls(*_coarsest(_VALUES, dtypes), least=1e-4, share=math.inf)

    def widened(self, dtype: torch.dtype | None) -> Tolerance:
        """As much as an output of a coarse dtype may differ, if that is more."""
        if dtype not in _COARSE:
            return self
        own = Tolerance.of(dtype)
        return replace(self, atol=max(self.atol, own.atol), rtol=max(self.rtol, own.rtol))

    def allows(self, difference: Discrepancy, expected: Any = None, *, times: float = 1) -> bool:
        """Whether a value passes.

        Args:
            difference: between the two sides.
            expected: the value that is right, whose dtype may be exact.
            times: how often the limit may be reached.

        >>> Tolerance(1.0, 1.0).allows(Discrepancy(abs=1.0, scale=3.0), torch.tensor(3))
        False
        """
        if difference.reason is not None or difference.dnan:
            return False
        dtype = expected.dtype if isinstance(expected, torch.Tensor) else None
        if dtype is not None and not (dtype.is_floating_point or dtype.is_complex):
            return difference.abs == 0
        scale = max(difference.scale, self.least)
        limit = self.atol * min(1.0, scale) + self.rtol * scale
        coarse = difference.scale > 0 and difference.abs > self.share * difference.scale
        return difference.abs <= times * limit and not coarse


def _coarsest(
    table: dict[torch.dtype, tuple[float, float]], dtypes: tuple[torch.dtype | None, ...]
) -> tuple[float, float]:
    """What is right for the dtype of least precision; float32 where none is known."""
    plain = table[torch.float32]
    return max((table.get(dtype, plain) for dtype in dtypes if dtype), default=plain)
