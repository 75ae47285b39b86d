"""Operators of torchvision: boxes, regions of interest, deformable convolution.

They are registered by name, so that torchvision is imported by whoever uses it. Boxes are
``(x1, y1, x2, y2)``; a region is a box with the number of its image in front, ``[K, 5]``.
Sources: https://docs.pytorch.org/vision/stable/ops.html and the operators of the same purpose in
https://onnx.ai/onnx/operators.
"""

from __future__ import annotations

import onnx_ir as ir

from torchferry.converter.block import Block
from torchferry.converter.lowering import lowers

__all__: list[str] = []

_FLOAT, _INT64 = ir.DataType.FLOAT, ir.DataType.INT64
Size = int | ir.Value
_REGIONS_UNTIL = 21  # onnxruntime 1.32 has kernels of RoiAlign 16 and MaxRoiPool 1, not of 22


def _check_regions(b: Block) -> None:
    if b.opset > _REGIONS_UNTIL:
        raise ValueError(
            f"onnxruntime cannot pool regions in opset {b.opset}, choose {_REGIONS_UNTIL} or older"
        )


def _fixed(sizes: dict[str, Size]) -> list[int]:
    """Sizes that ONNX keeps in attributes."""
    for name, size in sizes.items():
        if not isinstance(size, int):
            raise ValueError(f"its {name} depends on the inputs' sizes, fix it")
    return [size for size in sizes.values() if isinstance(size, int)]


@lowers("torchvision::nms")
def nms(b: Block, dets: ir.Value, scores: ir.Value, iou_threshold: float) -> ir.Value:
    if not iou_threshold >= 0:
        raise ValueError(f"its iou_threshold is {iou_threshold}: give a number from 0 to 1")
    chosen = b.NonMaxSuppression(
        b.Unsqueeze(b.cast(dets, _FLOAT), [0]),
        b.Unsqueeze(b.cast(scores, _FLOAT), [0, 1]),
        b.Shape(scores),
        b.constant([min(iou_threshold, 1.0)], _FLOAT),  # no two boxes overlap by more than 1
    )
    return b.Gather(chosen, 2, axis=1)  # of (image, class, box)


@lowers("torchvision::roi_align")
def roi_align(
    b: Block,
    x: ir.Value,
    rois: ir.Value,
    spatial_scale: float,
    pooled_height: Size,
    pooled_width: Size,
    sampling_ratio: int,
    aligned: bool,
) -> ir.Value:
    _check_regions(b)
    height, width = _fixed({"output height": pooled_height, "output width": pooled_width})
    images, boxes = b.Split(rois, [1, 4], axis=1, outputs=2)
    return b.RoiAlign(
        x,
        b.cast(boxes, x),
        b.Squeeze(b.cast(images, _INT64), [1]),
        coordinate_transformation_mode="half_pixel" if aligned else "output_half_pixel",
        output_height=height,
        output_width=width,
        sampling_ratio=max(
            sampling_ratio, 0
        ),  # of 0 samples there are as many as there are pixels
        spatial_scale=spatial_scale,
    )


@lowers("torchvision::roi_pool")
def roi_pool(
    b: Block,
    x: ir.Value,
    rois: ir.Value,
    spatial_scale: float,
    pooled_height: Size,
    pooled_width: Size,
) -> tuple[ir.Value, None]:
    _check_regions(b)
    sizes = _fixed({"output height": pooled_height, "output width": pooled_width})
    pooled = b.MaxRoiPool(
        b.cast(x, _FLOAT), b.cast(rois, _FLOAT), pooled_shape=sizes, spatial_scale=spatial_scale
    )
    return b.cast(pooled, x), None  # where the greatest is serves the backward pass alone


@lowers("torchvision::deform_conv2d")
def deform_conv2d(
    b: Block,
    x: ir.Value,
    weight: ir.Value,
    offset: ir.Value,
    mask: ir.Value,
    bias: ir.Value,
    stride_h: Size,
    stride_w: Size,
    pad_h: Size,
    pad_w: Size,
    dilation_h: Size,
    dilation_w: Size,
    groups: Size,
    offset_groups: Size,
    use_mask: bool,
) -> ir.Value:
    if b.opset < 19:
        raise ValueError(f"opset {b.opset} has no DeformConv, choose 19 or newer")
    kernel = _fixed({f"kernel's axis {axis}": b.dim(weight, axis) for axis in (2, 3)})
    rows, columns, groups, offset_groups, *pads = _fixed({
        "dilation_h": dilation_h, "dilation_w": dilation_w, "groups": groups,
        "offset_groups": offset_groups, "pad_h": pad_h, "pad_w": pad_w,
    })  # fmt: skip
    strides = _fixed({"stride_h": stride_h, "stride_w": stride_w})
    return b.DeformConv(
        x, weight, offset, bias, mask if use_mask else None,
        dilations=[rows, columns], group=groups, kernel_shape=kernel, offset_group=offset_groups,
        pads=pads * 2, strides=strides,
    )  # fmt: skip
