"""The patches torchferry keeps itself: one file a subject."""

from __future__ import annotations

from torchferry.capturer.patches import (
    attention,
    codec,
    convolution,
    detection,
    fake_quantize,
    filters,
    item,
    packed,
    padding,
    pooling,
    products,
    recurrent,
    rope,
    selective_scan,
    sizes,
    sliding_window,
    statistics,
    upsampling,
    vision,
)

__all__ = ["PATCHES"]

PATCHES = (
    *recurrent.PATCHES,
    *packed.PATCHES,
    *pooling.PATCHES,
    *attention.PATCHES,
    *rope.PATCHES,
    *selective_scan.PATCHES,
    *sliding_window.PATCHES,
    *padding.PATCHES,
    *codec.PATCHES,
    *convolution.PATCHES,
    *sizes.PATCHES,
    *item.PATCHES,
    *statistics.PATCHES,
    *vision.PATCHES,
    *detection.PATCHES,
    *products.PATCHES,
    *upsampling.PATCHES,
    *fake_quantize.PATCHES,
    *filters.PATCHES,
)
"""All of them, in the order they are applied."""
