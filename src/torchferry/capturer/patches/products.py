"""Kronecker products, whose shape C++ computes with sizes as numbers.

The operator stays in the program; only its fake results are computed otherwise.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor

from torchferry.capturer.patches.recurrent import fixes_length
from torchferry.capturer.patching.patch import Patch

__all__ = ["PATCHES"]


def _by_broadcasting(_: Callable[..., Any]) -> Callable[..., Any]:
    def kron(x: Tensor, other: Tensor) -> Tensor:
        """Each pair of axes becomes one; the operand of fewer axes has ones in front."""
        rank = max(x.ndim, other.ndim)
        x, other = (one[(None,) * (rank - one.ndim)] for one in (x, other))
        sizes = [a * b for a, b in zip(x.shape, other.shape, strict=True)]
        for axis in range(rank):
            x, other = x.unsqueeze(2 * axis + 1), other.unsqueeze(2 * axis)
        return (x * other).reshape(sizes)

    return kron


class _Squares(torch.nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.kron(x, x)


PATCHES = (
    Patch(
        subject="torch.ops.aten.kron.default",
        why="sizes become constants: its fake results are computed with them as numbers",
        link="https://github.com/pytorch/pytorch/blob/main/aten/src/ATen/native/LinearAlgebra.cpp",
        replace=_by_broadcasting,
        probe=partial(fixes_length, _Squares),
    ),
)
"""The one."""
