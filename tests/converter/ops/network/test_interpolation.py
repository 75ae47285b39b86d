"""Interpolation against eager: every mode, factors and sizes, static and dynamic."""

import pytest
import torch
from op_case import check, export
from torch import nn

from families import in_turn
from torchferry.converter.translate import translate
from torchferry.errors import LoweringFailed

aten = torch.ops.aten
interpolate = nn.functional.interpolate
r = torch.randn

NEAREST = [
    ("nearest", 1, aten.upsample_nearest1d.vec), ("nearest", 2, aten.upsample_nearest2d.vec),
    ("nearest", 3, aten.upsample_nearest3d.vec),
    ("nearest-exact", 1, aten._upsample_nearest_exact1d.vec),
    ("nearest-exact", 2, aten._upsample_nearest_exact2d.vec),
    ("nearest-exact", 3, aten._upsample_nearest_exact3d.vec),
]  # fmt: skip
SMOOTH = [
    ("linear", 1, aten.upsample_linear1d.vec), ("bilinear", 2, aten.upsample_bilinear2d.vec),
    ("bicubic", 2, aten.upsample_bicubic2d.vec), ("trilinear", 3, aten.upsample_trilinear3d.vec),
]  # fmt: skip
ANTIALIASED = [
    ("bilinear", aten._upsample_bilinear2d_aa.vec), ("bicubic", aten._upsample_bicubic2d_aa.vec),
]  # fmt: skip
WANTED = [
    {"scale_factor": 2.0}, {"scale_factor": 1.7}, {"scale_factor": 3.0}, {"scale_factor": 0.6},
    {"size": (9, 4, 8)}, {"scale_factor": 1.7, "recompute_scale_factor": True},
]  # fmt: skip


def images(axes):
    return (r((2, 3, 5, 6, 7)[: 2 + axes]),), (r((1, 3, 8, 4, 3)[: 2 + axes]),)


def settings(wanted, axes):
    return {**wanted, "size": wanted["size"][:axes]} if "size" in wanted else wanted


@pytest.mark.sample(3)
@pytest.mark.parametrize(("mode", "axes", "target"), NEAREST)
def test_nearest_picks_the_same_elements(mode, axes, target):
    def resized(x):
        return [interpolate(x, mode=mode, **settings(wanted, axes)) for wanted in WANTED]

    check(resized, *images(axes), target=target, exact=True)
    check(resized, images(axes)[0], target=target, exact=True)


@pytest.mark.parametrize("scale", [1.3, 2.1, (1.1, 2.05)])
def test_images_as_large_as_before_or_twice_that_are_copied(scale):
    """Where the size is rounded so, PyTorch does not use the scale."""
    sets = [(r(2, 3, height, width),) for height, width in ((6, 8), (9, 3), (2, 9), (1, 17))]
    check(lambda x: interpolate(x, scale_factor=scale), *sets, exact=True)
    for one in sets:
        check(lambda x: interpolate(x, scale_factor=scale), one, exact=True)


@pytest.mark.parametrize("mode", ["nearest", "nearest-exact"])
@pytest.mark.parametrize("out", [7, 10, 21, 25, 49])
def test_nearest_rounds_as_torch(mode, out):
    def resized(*signals):
        return [interpolate(x, size=out, mode=mode) for x in signals]

    check(resized, [r(1, 1, size) for size in range(1, 30, 4)], exact=True)


@pytest.mark.sample(1)
@pytest.mark.parametrize(
    ("mode", "axes", "target", "align_corners"), in_turn(SMOOTH, [False, True])
)
def test_smooth(mode, axes, target, align_corners):
    def resized(x):
        return [
            interpolate(x, mode=mode, align_corners=align_corners, **settings(wanted, axes))
            for wanted in WANTED
        ]

    check(resized, *images(axes), target=target, tolerance=2e-5)
    check(resized, images(axes)[0], target=target, tolerance=2e-5)


@pytest.mark.parametrize("wanted", [{"size": (9, 4)}, {"size": (3, 4)}, {"scale_factor": 0.6}])
@pytest.mark.parametrize(("mode", "target"), ANTIALIASED)
def test_antialias(mode, target, wanted):
    check(lambda x: interpolate(x, mode=mode, antialias=True, **wanted),
          (r(2, 3, 8, 9),), (r(1, 3, 12, 7),), target=target, tolerance=2e-5)  # fmt: skip


def test_antialias_with_aligned_corners_is_refused():
    def resized(x):
        return interpolate(x, 4, mode="bilinear", antialias=True, align_corners=True)

    with pytest.raises(LoweringFailed, match="leave one of them out"):
        translate(export(resized, (r(1, 3, 8, 9),)), 20)


@pytest.mark.parametrize("mode", ["nearest", "bilinear", "bicubic"])
def test_to_the_size_of_another_tensor(mode):
    check(lambda x, y: interpolate(x, size=y.shape[2:], mode=mode),
          (r(2, 3, 4, 5), r(2, 3, 8, 7)), (r(1, 3, 5, 9), r(1, 3, 6, 6)))  # fmt: skip


@pytest.mark.parametrize("dtype", [torch.uint8, torch.float64, torch.float16])
def test_nearest_of_any_dtype(dtype):
    check(lambda x: interpolate(x, size=(3, 4)), ((r(2, 3, 8, 9) * 50).to(dtype),),
          ((r(1, 3, 7, 5) * 50).to(dtype),), exact=True)  # fmt: skip


def test_float64_is_refused_where_it_would_be_rounded():
    program = export(lambda x: interpolate(x, 4, mode="linear"), (r(1, 2, 3).double(),))
    with pytest.raises(LoweringFailed, match="resizes float32, not double"):
        translate(program, 20)


@pytest.mark.parametrize(
    ("target", "function", "axes"),
    [
        (aten.upsample_nearest2d.default, lambda x: aten.upsample_nearest2d(x, [9, 8]), 2),
        (aten._upsample_nearest_exact1d.default,
         lambda x: aten._upsample_nearest_exact1d(x, [7], 1.4), 1),
        (aten.upsample_bilinear2d.default,
         lambda x: aten.upsample_bilinear2d(x, [9, 8], True), 2),
        (aten.upsample_linear1d.default, lambda x: aten.upsample_linear1d(x, [9], False), 1),
    ],
)  # fmt: skip
def test_the_overloads_with_sizes(target, function, axes):
    check(function, images(axes)[0], target=target)


def test_half_precision():
    check(lambda x: interpolate(x, scale_factor=2, mode="bilinear"), (r(1, 2, 3, 4).half(),))
