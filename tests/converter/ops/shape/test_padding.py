"""Padding against eager: modes, negative and symbolic amounts, dtypes."""

import pytest
import torch
from op_case import check
from torch import nn

aten = torch.ops.aten
f = nn.functional
r = torch.randn

PLANES = (r(2, 3, 4, 5),), (r(1, 3, 6, 4),)
TARGET = aten.pad.default


MODES = pytest.mark.parametrize("mode", ["constant", "reflect", "replicate", "circular"])


@pytest.mark.sample(3)
@MODES
@pytest.mark.parametrize("opset", [18, 20, 23])
def test_modes(mode, opset):
    def padded(x):
        pads = (2, 1, 0, 3), (0, 0, 1, 1), (0, 0, 0, 0)
        return [f.pad(x, pad, mode) for pad in pads]

    check(padded, *PLANES, target=TARGET, opset=opset, exact=True)
    check(lambda x: f.pad(x, (1, 2), mode), (r(2, 3, 4),), (r(1, 3, 6),), opset=opset)


@MODES
def test_negative_amounts(mode):
    def padded(x):
        pads = (-1, 2), (3, -2), (-1, -1), (-2 if mode == "circular" else -4, 2)
        return [f.pad(x, pad, mode) for pad in pads]

    check(padded, (r(2, 3, 5),), (r(1, 3, 5),), target=TARGET, exact=True)


def test_all_of_an_axis_is_cut_and_its_edge_repeated():
    check(lambda x: f.pad(x, (-4, 5, 0, 0), "replicate"), (r(5, 3, 4, 4),), exact=True)


def test_nothing_is_wrapped():
    check(lambda x: f.pad(x, (1, 2), "circular"), (r(0, 3, 3),))


@pytest.mark.parametrize(
    "dtype", [torch.int64, torch.int32, torch.int16, torch.uint8, torch.bool, torch.float16]
)
def test_dtypes(dtype):
    value = True if dtype is torch.bool else 3
    check(lambda x: f.pad(x, (1, 2), value=value), ((r(2, 3) * 9).to(dtype),), exact=True)


CASES = [
    (TARGET, lambda x: f.pad(x, (0, x.shape[0], 1, 0), value=-torch.inf), PLANES),
    (TARGET, lambda x: f.pad(x, (1, 1, 1, 1, 2, 0), "reflect"), [(r(1, 2, 3, 4, 5),)]),
    (aten.constant_pad_nd.default, lambda x: aten.constant_pad_nd(x, [1, -1], 2.5), PLANES),
    (aten.reflection_pad1d.default, lambda x: aten.reflection_pad1d(x, [1, 2]), [(r(2, 3, 4),)]),
    (aten.reflection_pad2d.default, lambda x: aten.reflection_pad2d(x, [1, 2, 1, 0]), PLANES),
    (aten.reflection_pad3d.default,
     lambda x: aten.reflection_pad3d(x, [1, 2, 1, 0, 1, 1]), [(r(1, 2, 3, 4, 5),)]),
    (aten.replication_pad1d.default, lambda x: aten.replication_pad1d(x, [6, 2]), [(r(2, 3, 4),)]),
    (aten.replication_pad2d.default, lambda x: aten.replication_pad2d(x, [6, 2, 1, 0]), PLANES),
    (aten.replication_pad3d.default,
     lambda x: aten.replication_pad3d(x, [1, 2, 1, 0, 1, 1]), [(r(1, 2, 3, 4, 5),)]),
    (aten._pad_circular.default, lambda x: aten._pad_circular(x, [1, 2, 0, 1]), PLANES),
    (aten._pad_enum.default, lambda x: aten._pad_enum(x, [1, 2], 0), [(r(2, 3, 4),)]),
]  # fmt: skip


@pytest.mark.parametrize(("target", "function", "sets"), CASES)
def test_matches_eager(target, function, sets):
    check(function, *sets, target=target, exact=True)
