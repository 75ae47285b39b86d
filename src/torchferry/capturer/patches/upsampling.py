"""Images made twice as large in diffusers' networks, at any batch and size.

Upstream copies large ones, which has the same numbers: a limit of a kernel of CUDA.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from torch import Tensor
from torch.nn.functional import interpolate

from torchferry.capturer.patching.patch import Patch

__all__ = ["PATCHES"]


def _copies(self: Any, x: Any, output_size: Any = None, *more: Any, **kwargs: Any) -> bool:
    """Whether nothing happens but the interpolation, and a convolution after it."""
    del x, output_size
    plain = self.norm is None and not self.use_conv_transpose and self.interpolate
    return plain and not more and not kwargs


def _uncopied(_: Callable[..., Any]) -> Callable[..., Any]:
    def forward(self: Any, x: Tensor, output_size: Sequence[int] | None = None) -> Tensor:
        """The same without the copies."""
        sized = {"scale_factor": 2.0} if output_size is None else {"size": output_size}
        x = interpolate(x, mode="nearest", **sized)
        if not self.use_conv:
            return x
        convolved: Tensor = (self.conv if self.name == "conv" else self.Conv2d_0)(x)
        return convolved

    return forward


PATCHES = (
    Patch(
        subject="diffusers.models.upsampling.Upsample2D.forward",
        why="large batches and images are copied under an if, which makes the graph right for "
        "smaller ones only",
        link="https://github.com/huggingface/diffusers/issues/984",
        replace=_uncopied,
        silent=True,
        acts=_copies,
        fingerprints=("95ae44906f39",),
    ),
)
"""The one."""
