"""Non-maximum suppression class by class, in torchvision and all that imports it.

Upstream takes one of two ways by the number of boxes, which data decides: the two keep the same.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor

from torchferry.capturer.patch import Patch, find_copies

__all__ = ["PATCHES"]


def _by_offsets(_: Callable[..., Any]) -> Callable[..., Any]:
    def batched_nms(boxes: Tensor, scores: Tensor, idxs: Tensor, iou_threshold: float) -> Tensor:
        """Boxes moved apart class by class, of any number, 0 too."""
        nms = torch.ops.torchvision.nms
        # The zeros are for want of boxes.
        largest = torch.cat([boxes, boxes.new_zeros(1, 4)]).max()
        offsets = idxs.to(boxes) * (largest + 1)
        kept: Tensor = nms(boxes + offsets[:, None], scores, iou_threshold)
        return kept

    return batched_nms


PATCHES = (
    Patch(
        subject="torchvision.ops.boxes.batched_nms",
        why="the number of boxes, which data decides, chooses between equal ways",
        link="https://docs.pytorch.org/vision/stable/generated/torchvision.ops.batched_nms.html",
        replace=_by_offsets,
        silent=True,
        places=partial(find_copies, "torchvision.ops.boxes", "batched_nms"),
    ),
)
"""The one."""
