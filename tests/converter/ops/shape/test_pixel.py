"""Channels and pixels."""

import pytest
import torch
import torch.nn.functional as F
from op_case import check, export

from torchferry.converter.translate import translate
from torchferry.errors import LoweringFailed

aten = torch.ops.aten
DEEP = [(torch.randn(2, 8, 3, 5),), (torch.randn(1, 8, 4, 2),)]
WIDE = [(torch.randn(2, 3, 4, 6),), (torch.randn(1, 3, 8, 2),), (torch.randn(0, 3, 4, 6),)]
IMAGES = [(torch.randn(2, 3, 5, 6),), (torch.randn(1, 3, 7, 9),)]
COLUMNS = [(torch.randn(2, 12, 20),), (torch.randn(1, 12, 20),)]

CASES = [
    (aten.pixel_shuffle.default, lambda x: F.pixel_shuffle(x, 2), DEEP),
    (aten.pixel_shuffle.default, lambda x: F.pixel_shuffle(x[0], 2), DEEP),
    (aten.pixel_shuffle.default, lambda x: F.pixel_shuffle(x[None].long(), 2), DEEP),
    (aten.pixel_unshuffle.default, lambda x: F.pixel_unshuffle(x, 2), WIDE[:2]),
    (aten.pixel_unshuffle.default, lambda x: F.pixel_unshuffle(x[0], 2), WIDE[:2]),
    (aten.channel_shuffle.default, lambda x: F.channel_shuffle(x, 4), DEEP),
    (aten.native_channel_shuffle.default, lambda x: torch.native_channel_shuffle(x, 2), DEEP[:1]),
    (aten.im2col.default, lambda x: F.unfold(x, 2), IMAGES),
    (aten.im2col.default, lambda x: F.unfold(x, (2, 3), (2, 1), (1, 2), (2, 1)), IMAGES),
    (aten.im2col.default, lambda x: F.unfold(x[0], 2), IMAGES),
    (aten.col2im.default, lambda x: F.fold(x, (5, 6), 2), COLUMNS),
    (aten.col2im.default, lambda x: F.fold(x[0], (5, 6), 2), COLUMNS),
    (aten.col2im.default, lambda x: F.fold(x, (7, 8), (2, 2), (2, 3), (0, 0), (1, 1)),
     [(torch.randn(2, 12, 25),)]),
    (aten.col2im.default, lambda x: F.fold(x, (8, 10), 2, padding=1, stride=2),
     [(torch.randn(2, 12, 30),)]),
]  # fmt: skip


@pytest.mark.sample(4)
@pytest.mark.parametrize(("target", "function", "sets"), CASES)
def test_matches_eager(target, function, sets):
    check(function, *sets, target=target)


@pytest.mark.parametrize("dtype", [torch.float16, torch.float64, torch.int64])
def test_any_dtype(dtype):
    def function(x):
        return F.channel_shuffle(x, 2), F.pixel_shuffle(x, 2), F.pixel_unshuffle(x[..., :2, :2], 2)

    check(function, *[((x * 9).to(dtype),) for (x,) in DEEP])


def test_folding_in_float64_is_refused():
    with pytest.raises(LoweringFailed, match="fold a float32"):
        translate(export(lambda x: F.fold(x.double(), (5, 6), 2), *COLUMNS), 20)
