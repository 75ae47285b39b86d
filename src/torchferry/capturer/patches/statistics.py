"""Covariances, which look at how many observations there are as if that were data.

PyTorch warns where there are too few, and asks a tensor for that, whose value no trace knows. The
operators stay in the program; only their fake results are computed otherwise.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from torchferry.capturer.patching.patch import Patch
from torchferry.seams.pytorch import DataDependentOutputException, FakeTensorMode

__all__ = ["PATCHES"]

_LINK = "https://github.com/pytorch/pytorch/blob/v2.13.0/aten/src/ATen/native/Correlation.cpp"


def _unasked(_: Callable[..., Any]) -> Callable[..., Any]:
    def cov(
        x: Tensor,
        *,
        correction: int = 1,
        fweights: Tensor | None = None,
        aweights: Tensor | None = None,
    ) -> Tensor:
        """The same without the warning."""
        rows = x if x.ndim > 1 else x.reshape(1, -1)
        given = [weights for weights in (fweights, aweights) if weights is not None]
        weights = torch.ones_like(rows[0]) if not given else given[0]
        weights = weights if len(given) < 2 else weights * given[1]
        count = weights.sum()
        lost = correction * ((weights * aweights).sum() / count if aweights is not None else 1)
        apart = rows - (rows * weights).sum(1, keepdim=True) / count
        products = apart @ (apart * weights).t().conj()
        return (products / (count - lost).clamp(min=0)).squeeze()

    return cov


def _of_covariances(_: Callable[..., Any]) -> Callable[..., Any]:
    def corrcoef(x: Tensor) -> Tensor:
        """Upstream's, with covariances that ask for nothing."""
        both: Tensor = torch.ops.aten.cov.default(x)
        if both.ndim == 0:
            return both / both
        spread = both.diagonal().sqrt()
        return (both / spread[:, None] / spread).clip(-1, 1)

    return corrcoef


def _asks(operator: Any) -> Callable[[], bool]:
    def probe() -> bool:
        with FakeTensorMode():
            try:
                operator(torch.zeros(2, 3))
            except DataDependentOutputException:
                return True
        return False

    return probe


PATCHES = tuple(
    Patch(
        subject=f"torch.ops.aten.{name}.default",
        why="the number of observations is asked for as a value, only to warn where it is small",
        link=_LINK,
        replace=replace,
        probe=_asks(getattr(torch, name)),
    )
    for name, replace in (("cov", _unasked), ("corrcoef", _of_covariances))
)
