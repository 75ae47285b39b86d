"""Largest values along a line of any length.

``aten.max_pool1d`` computes its fake results in C++ with the length as a number, which makes it a
constant; the operator that also gives the places, ``max_pool1d_with_indices``, does not.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from torchferry.capturer.patches.recurrent import fixes_length
from torchferry.capturer.patching.patch import Patch

__all__ = ["PATCHES"]


def _without_places(_: Callable[..., Any]) -> Callable[..., Any]:
    def max_pool1d(  # noqa: PLR0917  (as the operator it stands for)
        x: Tensor,
        kernel_size: Sequence[int],
        stride: Sequence[int] = (),
        padding: Sequence[int] = (0,),
        dilation: Sequence[int] = (1,),
        ceil_mode: bool = False,
    ) -> Tensor:
        """The values of the operator that gives the places too."""
        both: tuple[Tensor, Tensor] = torch.ops.aten.max_pool1d_with_indices(
            x, kernel_size, stride, padding, dilation, ceil_mode
        )
        return both[0]

    return max_pool1d


PATCHES = (
    Patch(
        subject="torch.ops.aten.max_pool1d.default",
        why="the length becomes a constant: its fake results are computed with it as a number",
        link="https://github.com/pytorch/pytorch/blob/main/aten/src/ATen/native/MaxPooling.cpp",
        replace=_without_places,
        probe=partial(fixes_length, partial(torch.nn.MaxPool1d, 2), 2),
    ),
)
"""The one."""
