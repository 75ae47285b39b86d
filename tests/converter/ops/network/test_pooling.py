"""Pooling against eager, at sizes other than those exported."""

import itertools

import pytest
import torch
from op_case import check, export
from torch import nn

import torchferry as tf
from torchferry.converter.translate import translate
from torchferry.errors import LoweringFailed, UsageError

aten = torch.ops.aten
f = nn.functional
r = torch.randn

LINES = (r(2, 3, 9),), (r(1, 3, 8),), (r(2, 3, 12),)
PLANES = (r(2, 3, 8, 9),), (r(1, 3, 7, 10),), (r(2, 3, 9, 6),), (r(0, 3, 8, 9),)
CUBES = (r(2, 3, 4, 5, 6),), (r(1, 3, 6, 4, 5),)
WIDE = (r(2, 3, 8, 9).double(),), (r(1, 3, 7, 10).double(),), (r(2, 3, 9, 6).double(),)
WHOLE = (torch.randint(-9, 9, (2, 3, 8, 9)),), (torch.randint(-9, 9, (1, 3, 7, 10)),)
SHORT = [(torch.randint(-9, 9, (2, 3, 8, 9), dtype=torch.int16),)]

CASES = [
    (aten.max_pool1d.default, lambda x: f.max_pool1d(x, 3, 2, 1),
     [(r(2, 3, 9),), (r(1, 3, 9),)]),
    (aten.max_pool1d_with_indices.default,
     lambda x: f.max_pool1d(x, 2, 3, ceil_mode=True, return_indices=True), LINES),
    (aten.max_pool2d.default, lambda x: f.max_pool2d(x, 3), PLANES),
    (aten.max_pool2d.default, lambda x: f.max_pool2d(x, (2, 3), 1, 1, 2), PLANES),
    (aten.max_pool2d.default, lambda x: f.max_pool2d(x, 2, 2, 1, 2, ceil_mode=True),
     [(r(2, 3, 6, 7),), (r(1, 3, 1, 1),), (r(1, 3, 1, 5),)]),  # windows of padding alone
    (aten.max_pool2d.default, lambda x: f.max_pool2d(x, 2), [(r(3, 8, 9),), (r(3, 7, 10),)]),
    (aten.max_pool2d.default, lambda x: f.max_pool2d(x, 3, 2, 1, ceil_mode=True), WHOLE),
    (aten.max_pool2d.default, lambda x: f.max_pool2d(x, 3, 2, 1), SHORT),
    (aten.max_pool2d.default, lambda x: f.max_pool2d(x, 2), [(r(2, 3, 8, 9).half(),)]),
    (aten.max_pool2d_with_indices.default,
     lambda x: f.max_pool2d(x, 3, 2, 1, ceil_mode=True, return_indices=True), PLANES),
    (aten.max_pool3d.default, lambda x: f.max_pool3d(x, 2, 2), CUBES),
    (aten.max_pool3d_with_indices.default,
     lambda x: f.max_pool3d(x, 2, 1, return_indices=True), CUBES),
    (aten.avg_pool1d.default, lambda x: f.avg_pool1d(x, 3, 2, 1), LINES),
    (aten.avg_pool1d.default, lambda x: f.avg_pool1d(x, 3), [(r(3, 9),), (r(3, 7),)]),
    (aten.avg_pool2d.default, lambda x: f.avg_pool2d(x, 3, 2, 1, divisor_override=2), PLANES),
    (aten.avg_pool2d.default,
     lambda x: f.avg_pool2d(x, (3, 2), (2, 3), 1, True, divisor_override=2), PLANES),
    (aten.avg_pool2d.default, lambda x: f.avg_pool2d(x, 3, 2, 1, True), WIDE),
    (aten.avg_pool2d.default, lambda x: f.avg_pool2d(x, 3, 2, 1, True, False), WIDE),
    (aten.avg_pool2d.default, lambda x: f.avg_pool2d(x, 3, 2, 1), WHOLE),
    (aten.avg_pool3d.default, lambda x: f.avg_pool3d(x, 3, 2, 1, True, False), CUBES),
    (aten.avg_pool3d.default, lambda x: f.avg_pool3d(x, 3, 2, 1, True, True), CUBES),
    (aten.max_unpool2d.default,
     lambda x: f.max_unpool2d(*f.max_pool2d(x, 2, return_indices=True), 2),
     [(r(2, 3, 8, 6),), (r(1, 3, 6, 4),)]),
    (aten.max_unpool3d.default,
     lambda x: f.max_unpool3d(*f.max_pool3d(x, 2, return_indices=True), 2),
     [(r(2, 3, 4, 2, 2),)]),
]  # fmt: skip


@pytest.mark.parametrize(("target", "function", "sets"), CASES)
def test_matches_eager(target, function, sets):
    check(function, *sets, target=target)


@pytest.mark.parametrize(("stride", "padding", "counted"),
                         list(itertools.product((1, 2, 3), (0, 1), (True, False))))  # fmt: skip
def test_ceil_mode_counts_windows_and_elements_as_torch(stride, padding, counted):
    def both(x):
        return (f.avg_pool2d(x, (3, 2), stride, padding, True, counted),
                f.max_pool2d(x, (3, 2), stride, padding, ceil_mode=True))  # fmt: skip

    check(both, *PLANES, target=aten.avg_pool2d.default)


def test_random_windows_are_refused():
    program = export(lambda x: f.fractional_max_pool2d(x, 2, 3), (r(2, 3, 8, 9),))
    with pytest.raises(LoweringFailed, match="drawn at random, use max_pool"):
        translate(program, 20)


def test_a_nan_is_refused_before_a_pool_loses_it(tmp_path):
    model = torch.nn.Sequential(torch.nn.MaxPool2d(3, 2, 1))
    program = tf.export(model, [(r(2, 3, 8, 9),), (r(3, 3, 7, 6),)], check=False)
    program.save(tmp_path / "pool.onnx")
    x = r(1, 3, 5, 5)
    for called in (program, tf.load(tmp_path / "pool.onnx")):
        torch.testing.assert_close(called(x), model(x))
        with pytest.raises(UsageError, match=r"argument .* holds a NaN"):
            called(x / 0 * 0)


@pytest.mark.parametrize(
    ("pool", "size"),
    [
        (nn.MaxPool1d(3, 1, 1), (9,)),
        (nn.MaxPool2d(3, 2, 1), (9, 8)),
        (nn.MaxPool3d(2), (4, 5, 6)),
        (nn.AdaptiveMaxPool2d(1), (4, 5)),
        (nn.AdaptiveMaxPool1d(3), (7,)),
    ],
)
def test_a_window_of_what_the_model_hides_is_minus_infinity(pool, size):
    def function(x):
        return pool(x.masked_fill(x > 0, -float("inf")))

    check(function, (r(2, 3, *size),), (r(1, 3, *size).abs(),))


def test_adaptive_pools_keep_nan():
    x = r(2, 3, 7)
    x[0, 1, 4] = float("nan")
    check(lambda x: f.adaptive_max_pool1d(x, 3), (r(2, 3, 7),), (x,))
