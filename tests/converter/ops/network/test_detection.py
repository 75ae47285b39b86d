"""Operators of torchvision against eager, at sizes other than those exported."""

import pytest
import torch
from op_case import check, export

from torchferry.converter.translate import translate
from torchferry.errors import LoweringFailed

torchvision = pytest.importorskip("torchvision")

# of torchvision 0.28 itself
pytestmark = pytest.mark.filterwarnings("ignore:.create_unbacked_symint. is dep:FutureWarning")

ops = torchvision.ops
vision = torch.ops.torchvision


def boxes(count, size=20.0, seed=0):
    generator = torch.Generator().manual_seed(seed)
    corners = torch.rand(count, 2, generator=generator) * size * 0.6
    return torch.cat([corners, corners + torch.rand(count, 2, generator=generator) * size], 1)


def scored(count, seed=0):
    return boxes(count, seed=seed), torch.rand(
        count, generator=torch.Generator().manual_seed(seed)
    )


def regions(count, images=2, seed=0):
    generator = torch.Generator().manual_seed(seed)
    images = torch.randint(0, images, (count, 1), generator=generator).float()
    return torch.cat([images, boxes(count, seed=seed)], 1)


PICTURES = [
    (torch.randn(2, 3, 17, 20), regions(5)),
    (torch.randn(2, 3, 12, 31), regions(9, seed=1)),
    (torch.randn(2, 3, 12, 31), regions(1, seed=2)),
    (torch.randn(2, 3, 12, 31), regions(0)),
]


@pytest.mark.parametrize("threshold", [0.0, 0.3, 0.7, 1.0, 1.5])
def test_nms(threshold):
    sets = [scored(12), scored(30, 1), scored(1, 2), scored(0, 3)]
    check(lambda d, s: ops.nms(d, s, threshold), *sets, target=vision.nms.default)


def test_nms_keeps_the_first_of_equal_scores():
    sets = [(boxes(n), torch.ones(n)) for n in (8, 13)]
    check(lambda d, s: ops.nms(d, s, 0.4), *sets)


def test_nms_does_not_drop_boxes_without_area():
    flat = torch.tensor([[1.0, 1, 1, 1], [1, 1, 1, 1], [0, 0, 2, 2], [0, 0, 2, 2.1]])
    check(lambda d, s: ops.nms(d, s, 0.5), (flat, torch.tensor([0.1, 0.2, 0.3, 0.4])))


def test_nms_of_each_class_alone():
    def function(d, s):
        classes = torch.arange(s.shape[0]) % 3
        return d[ops.batched_nms(d, s, classes, 0.3)]

    check(function, scored(12), scored(30, 1))


def test_nms_in_double_precision():
    check(lambda d, s: ops.nms(d.double(), s.double(), 0.5), scored(12), scored(5))


def test_a_negative_threshold_is_refused():
    with pytest.raises(LoweringFailed, match=r"iou_threshold is -0\.1"):
        translate(export(lambda d, s: ops.nms(d, s, -0.1), scored(3)), 20)


@pytest.mark.parametrize("aligned", [False, True])
@pytest.mark.parametrize("ratio", [-1, 0, 1, 2])
def test_roi_align(aligned, ratio):
    check(
        lambda x, r: ops.roi_align(x, r, (3, 4), 0.5, ratio, aligned),
        *PICTURES,
        target=vision.roi_align.default,
    )


# eager computes the places of float16 in float16, too
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float16, 5e-2), (torch.float64, 1e-5)])
def test_roi_align_of_other_dtypes(dtype, tolerance):
    sets = [tuple(t.to(dtype) for t in pair) for pair in PICTURES[:2]]
    check(lambda x, r: ops.roi_align(x, r, 2, 1.0, 2, True), *sets, tolerance=tolerance)


@pytest.mark.parametrize("opset", [18, 21])
def test_regions_in_other_opsets(opset):
    check(lambda x, r: ops.roi_align(x, r, (3, 4), 0.5), *PICTURES, opset=opset)
    check(lambda x, r: ops.roi_pool(x, r, (3, 4), 0.5), *PICTURES, opset=opset)


@pytest.mark.parametrize("pool", [ops.roi_align, ops.roi_pool])
def test_regions_are_refused_where_onnxruntime_has_no_kernel(pool):
    with pytest.raises(LoweringFailed, match="choose 21 or older"):
        translate(export(lambda x, r: pool(x, r, 2), PICTURES[0]), 22)


@pytest.mark.parametrize("scale", [1.0, 0.5])
def test_roi_pool(scale):
    check(
        lambda x, r: ops.roi_pool(x, r, (3, 2), scale), *PICTURES, target=vision.roi_pool.default
    )


def deformed(groups, offset_groups, modulated, bias, **options):
    weight = torch.randn(4, 4 // groups, 3, 2)
    constant = torch.randn(4) if bias else None

    def function(x, offset, mask):
        return ops.deform_conv2d(
            x, offset, weight, constant, mask=mask.sigmoid() if modulated else None, **options
        )

    return function, offset_groups


@pytest.mark.parametrize(
    ("case", "sizes"),
    [
        (deformed(1, 1, True, True), (7, 8)),
        (deformed(2, 2, True, True), (7, 8)),
        (deformed(1, 2, False, False), (7, 8)),
        (deformed(1, 1, True, False, stride=(2, 1), padding=(1, 2)), (5, 12)),
        (deformed(2, 1, False, True, dilation=(2, 1), padding=1), (7, 10)),
    ],
)
def test_deform_conv2d(case, sizes):
    function, groups = case
    sets = [
        (
            torch.randn(batch, 4, 9, 9),
            torch.randn(batch, 12 * groups, *sizes),
            torch.randn(batch, 6 * groups, *sizes),
        )
        for batch in (2, 3, 1)
    ]
    check(function, *sets, target=vision.deform_conv2d.default, tolerance=1e-4)


def test_deform_conv2d_of_pictures_of_any_size():
    function, _ = deformed(1, 1, True, True)
    sets = [
        (
            torch.randn(1, 4, n, m),
            torch.randn(1, 12, n - 2, m - 1),
            torch.randn(1, 6, n - 2, m - 1),
        )
        for n, m in ((9, 7), (5, 11))
    ]
    check(function, *sets, opset=22, tolerance=1e-4)


def test_deform_conv2d_is_refused_where_onnx_has_none():
    function, _ = deformed(1, 1, False, False)
    inputs = torch.randn(1, 4, 9, 9), torch.randn(1, 12, 7, 8), torch.randn(1, 6, 7, 8)
    with pytest.raises(LoweringFailed, match="choose 19 or newer"):
        translate(export(function, inputs), 18)


def test_a_detector_s_last_steps():
    """Scores above a threshold, the best of each overlap, their features."""

    def function(x, d, s):
        good = s > 0.3
        d, s = d[good], s[good]
        keep = ops.nms(d, s, 0.5)
        images = torch.zeros_like(s[keep]).unsqueeze(1)
        return ops.roi_align(x, torch.cat([images, d[keep]], 1), 2, 1.0, 2, True), s[keep]

    sets = [(torch.randn(2, 3, 17, 20), *scored(12)), (torch.randn(2, 3, 9, 14), *scored(25, 1))]
    check(function, *sets)
