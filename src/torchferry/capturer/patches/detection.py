"""torchvision's detectors: suppression of boxes class by class, and a batch of unlike images.

Upstream takes one of two ways by the number of boxes, which data decides: the two keep the same.
It writes each image into a larger one; what torch then asks of sizes holds for the example's.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial, reduce
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad

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


def _padded(_: Callable[..., Any]) -> Callable[..., Any]:
    def batch_images(_self: Any, images: list[Tensor], size_divisible: int = 32) -> Tensor:
        """Each image with zeros to the right and below, by arithmetic on integers."""
        largest = [reduce(torch.sym_max, (image.shape[n] for image in images)) for n in (1, 2)]
        height, width = (-(-size // size_divisible) * size_divisible for size in largest)
        missing = [(0, width - image.shape[2], 0, height - image.shape[1]) for image in images]
        return torch.stack([pad(*one) for one in zip(images, missing, strict=True)])

    return batch_images


PATCHES = (
    Patch(
        subject="torchvision.ops.boxes.batched_nms",
        why="the number of boxes, which data decides, chooses between equal ways",
        link="https://docs.pytorch.org/vision/stable/generated/torchvision.ops.batched_nms.html",
        replace=_by_offsets,
        silent=True,
        places=partial(find_copies, "torchvision.ops.boxes", "batched_nms"),
    ),
    Patch(
        subject="torchvision.models.detection.transform.GeneralizedRCNNTransform.batch_images",
        why="images are written into larger ones, which makes the sizes of these conditions",
        link="https://docs.pytorch.org/vision/stable/models.html#object-detection",
        replace=_padded,
        silent=True,
        fingerprints=("819df0b1d63a",),
    ),
)
"""Both."""
