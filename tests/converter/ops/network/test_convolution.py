"""Convolutions against eager, at sizes other than those exported."""

import pytest
import torch
from op_case import check, export
from torch import nn

from torchferry.converter.translate import translate
from torchferry.errors import LoweringFailed

aten = torch.ops.aten
f = nn.functional
r = torch.randn

PLANES = (r(2, 4, 8, 9),), (r(1, 4, 11, 7),), (r(0, 4, 8, 9),)
LINES = (r(2, 4, 8),), (r(1, 4, 11),)
WIDE = (r(2, 4, 8, 9).double(),), (r(1, 4, 11, 7).double(),)


def ints(*sizes):
    return torch.randint(-9, 9, sizes)


CASES = [
    (aten.conv1d.default, nn.Conv1d(4, 6, 3, 2, 1), LINES),
    (aten.conv1d.default, nn.Conv1d(4, 6, 3), [(r(4, 8),), (r(4, 11),)]),
    (aten.conv1d.padding, nn.Conv1d(4, 6, 3, padding="same", dilation=3), LINES),
    (aten.conv1d.padding, nn.Conv1d(4, 6, 4, padding="valid", stride=2), LINES),
    (aten.conv1d.default, lambda x, w: f.conv1d(x, w, stride=2, padding=1),
     [(ints(2, 3, 7), ints(2, 3, 3)), (ints(1, 3, 9), ints(2, 3, 3))]),
    (aten.conv2d.default, nn.Conv2d(4, 6, (3, 2), 2, (1, 0), groups=2), PLANES),
    (aten.conv2d.default, nn.Conv2d(4, 4, 3, dilation=(2, 1), groups=4, bias=False), PLANES),
    (aten.conv2d.default, nn.Conv2d(4, 6, (3, 2), 2, (1, 0), (1, 2), 2).double(), WIDE),
    (aten.conv2d.default, nn.Conv2d(4, 6, 3).half(), [(r(2, 4, 8, 9).half(),)]),
    (aten.conv2d.padding, nn.Conv2d(4, 6, (5, 3), padding="same"), PLANES),
    (aten.conv3d.default, nn.Conv3d(4, 2, 2, 1, 1), [(r(2, 4, 4, 5, 3),), (r(1, 4, 3, 3, 6),)]),
    (aten.conv3d.padding, nn.Conv3d(4, 2, 3, padding="same"), [(r(2, 4, 4, 5, 3),)]),
    (aten.conv_transpose1d.default, nn.ConvTranspose1d(4, 6, 3, 2, 1, 1), LINES),
    (aten.conv_transpose1d.default, nn.ConvTranspose1d(4, 6, 3), [(r(4, 8),)]),
    (aten.conv_transpose2d.input, nn.ConvTranspose2d(4, 6, (3, 2), 2, (1, 0), 1, 2), PLANES),
    (aten.conv_transpose2d.input,
     nn.ConvTranspose2d(4, 6, (3, 2), (2, 3), (1, 0), 1, 2, True, 2).double(), WIDE),
    (aten.conv_transpose3d.input, nn.ConvTranspose3d(4, 2, 2, 2, bias=False),
     [(r(2, 4, 4, 5, 3),), (r(1, 4, 3, 3, 6),)]),
    (aten.convolution.default,
     lambda x, w: aten.convolution(x, w, None, [2], [1], [1], True, [1], 1),
     [(r(2, 4, 8), r(4, 6, 3)), (r(1, 4, 5), r(4, 6, 3))]),
    (aten.convolution.default,
     lambda x, w: aten.convolution(x, w, None, [2], [1], [1], False, [0], 2),
     [(r(2, 4, 8), r(6, 2, 3)), (r(1, 4, 5), r(6, 2, 3))]),
]  # fmt: skip


@pytest.mark.parametrize(("target", "function", "sets"), CASES)
def test_matches_eager(target, function, sets):
    check(function, *sets, target=target)


@pytest.mark.filterwarnings("ignore:Using padding='same' with even kernel lengths")
def test_the_same_size_with_an_even_kernel_pads_more_at_the_end():
    check(nn.Conv1d(4, 6, 4, padding="same", dilation=3), *LINES, target=aten.conv1d.padding)


def test_a_symbolic_stride_is_refused_by_name():
    program = export(lambda x, w, y: f.conv1d(x, w, padding=y.shape[0]),
                     (r(2, 4, 8), r(6, 4, 3), r(2)), (r(2, 4, 8), r(6, 4, 3), r(1)))  # fmt: skip
    with pytest.raises(LoweringFailed, match="its padding depends on the inputs' sizes"):
        translate(program, 20)


@pytest.mark.parametrize("each", [1, 2])
def test_groups_may_be_a_size_that_varies(each):
    def per_channel(x):
        groups = x.shape[1] // 2
        weight = torch.arange(6.0).reshape(1, 2, 3).repeat(groups * each, 1, 1)
        return f.conv1d(x, weight, padding=2, stride=2, dilation=2, groups=groups)

    check(per_channel, (r(2, 4, 9),), (r(1, 6, 12),), (r(3, 2, 7),))


def test_planes_by_as_many_groups_as_channels():
    def per_channel(x, weight):
        return f.conv2d(x, weight, padding=1, groups=x.shape[1])

    sets = [(r(n, c, 5, 6), r(c, 1, 3, 2)) for n, c in ((2, 4), (3, 5), (1, 2))]
    check(per_channel, *sets, target=aten.conv2d.default)
