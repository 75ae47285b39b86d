"""torchvision's detectors: suppression of boxes class by class, and a batch of unlike images.

Upstream takes one of two ways by the number of boxes, which data decides: the two keep the same.
It writes each image into a larger one; what torch then asks of sizes holds for the example's. It
resizes one mask after the other to the size of its box.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial, reduce
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad

from torchferry.capturer.patching.patch import Patch, find_copies

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


def _pasted(_: Callable[..., Any]) -> Callable[..., Any]:
    def paste_masks_in_image(
        masks: Tensor, boxes: Tensor, img_shape: tuple[Any, Any], padding: int = 1
    ) -> Tensor:
        """All masks at once, as products with the weights of a bilinear interpolation."""
        scale = (masks.shape[-1] + 2 * padding) / masks.shape[-1]
        masks = pad(masks, (padding,) * 4)
        center, half = (boxes[:, :2] + boxes[:, 2:]) * 0.5, (boxes[:, 2:] - boxes[:, :2]) * 0.5
        first = (center - half * scale).to(torch.int64)
        last = (center + half * scale).to(torch.int64)
        columns, rows = (
            _weights(first[:, axis], last[:, axis], masks.shape[-1], img_shape[1 - axis]).to(masks)
            for axis in (0, 1)
        )
        found: Tensor = rows[:, None] @ masks @ columns.mT[:, None]
        return found

    return paste_masks_in_image


def _weights(first: Tensor, last: Tensor, size: int, length: Any) -> Tensor:
    """How much each cell of a mask counts at each pixel of an image: (boxes, length, size).

    Args:
        first: the first pixel of each box along an axis.
        last: the last.
        size: how many cells a mask has.
        length: how many pixels the image has.
    """
    pixels = torch.arange(length, device=first.device) - first[:, None]
    count = (last - first + 1)[:, None]
    # As interpolate(mode="bilinear", align_corners=False) places a pixel among the cells.
    place = (pixels + 0.5) * (size / count.clamp(min=1)) - 0.5
    distance = place.clamp(0, size - 1)[..., None] - torch.arange(size, device=first.device)
    inside = (pixels >= 0) & (pixels < count)
    return (1 - distance.abs()).clamp(min=0) * inside[..., None]


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
    Patch(
        subject="torchvision.models.detection.roi_heads.paste_masks_in_image",
        why="masks, whose number data decides, are resized one by one to sizes that it decides",
        link="https://docs.pytorch.org/vision/stable/models/mask_rcnn.html",
        replace=_pasted,
        silent=True,
        fingerprints=("cb51da381a8f",),
        places=partial(
            find_copies, "torchvision.models.detection.roi_heads", "paste_masks_in_image"
        ),
    ),
)
"""All of them."""
