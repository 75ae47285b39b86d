"""Models whose ONNX form would be wrong somewhere: each is refused or reported, with its name."""

import pytest
import torch
from torch import nn

import torchferry as tf


class Model(nn.Module):
    """A linear layer, a buffer, and a forward of the test's making."""

    def __init__(self, function):
        super().__init__()
        torch.manual_seed(0)
        self.linear = nn.Linear(4, 4)
        self.register_buffer("count", torch.zeros(1))
        self.function = function

    def forward(self, x):
        return self.function(self, x)


def floats(rows):
    return torch.randn(rows, 4, generator=torch.Generator().manual_seed(rows))


def integers(rows):
    return torch.randint(0, 2**39, (rows, 4), generator=torch.Generator().manual_seed(rows))


def export(function, make=floats, **options):
    sets = [((make(rows),), {}) for rows in (2, 3)]
    return tf.export(Model(function).eval(), sets, **options).report


def count_inside(block):
    def function(model, x):
        with block():
            model.count.add_(1)
        return model.linear(x)

    return function


def write_to_input(_, x):
    with torch.enable_grad():
        x.add_(1)
    return x * 2


@pytest.mark.parametrize(
    "function",
    [
        count_inside(torch.enable_grad),
        count_inside(lambda: torch.autocast("cpu", torch.bfloat16)),
        write_to_input,
    ],
)
def test_a_write_inside_a_block_is_refused(function):
    message = r"forward writes to (buffer count|input x), at .*test_never"
    with pytest.raises(tf.ConversionError, match=message):
        export(function)


@pytest.mark.parametrize(
    ("function", "size"),
    [
        (lambda model, x: model.linear(x) * (2 if x.shape[0] > 20 else 1), 21),
        (lambda model, x: model.linear(x) * (2 if x.shape[0] < 2 else 1), 1),
    ],
)
def test_a_branch_on_a_size_is_found_where_it_turns(function, size):
    report = export(function)
    assert report.ok
    assert "verified where batch_size" in report.verdict
    (turned,) = [one for one in report.data["checks"] if one["sizes"]["batch_size"] == size]
    assert turned["outside"]
    assert any(output["verdict"] == "differs" for output in turned["outputs"])


@pytest.mark.parametrize(
    ("function", "make"),
    [
        # log(1 + x) of tiny x, as torch.onnx writes log1p, is nothing but rounding
        (lambda _, x: torch.log1p(x.abs() * 1e-7), floats),
        # one huge masked value must not hide the others
        (
            lambda _, x: (torch.expm1(x * 1e-6) * 1e6).masked_fill(
                x > 1, torch.finfo(x.dtype).min
            ),
            floats,
        ),
        # integers are equal or they are not
        (lambda _, x: torch.cat([(x.float() % 3.0).long(), x], 1), integers),
    ],
)
def test_errors_that_a_loose_tolerance_would_hide(function, make):
    assert export(function, make).ok
    report = export(function, make, exporter="onnx_dynamo")
    assert not report.ok
    assert "the conversion to ONNX is at fault" in report.problems[0]


def test_a_masked_output_that_is_right_passes():
    report = export(lambda m, x: m.linear(x).masked_fill(x > 1, torch.finfo(x.dtype).min))
    assert report.ok, report.problems


class ChangesItsArgument(nn.Module):
    def forward(self, given):
        given["doubled"] = given["x"] * 2
        return given["x"] + 1


class ReturnsItsArgument(nn.Module):
    def forward(self, given):
        given["doubled"] = given["x"] * 2
        return given


def test_an_argument_changed_in_place_is_reported_unless_it_is_returned():
    sets = [(({"x": floats(rows)},), {}) for rows in (2, 3)]
    report = tf.export(ChangesItsArgument(), sets).report
    assert not report.ok
    assert "forward changes its argument given in place" in report.problems[0]
    assert tf.export(ReturnsItsArgument(), sets).report.ok


class Scaled(nn.Module):
    def forward(self, x, scale=1.0, flag=True):
        return x * scale if flag else x - scale


def test_a_constant_that_is_not_the_default_must_be_given():
    program = tf.export(Scaled(), [((floats(rows), 2.0, True), {}) for rows in (2, 3)])
    assert program.report.ok
    x = floats(5)
    assert torch.equal(program(x, 2.0), x * 2)
    assert torch.equal(program(x, scale=2.0, flag=True), x * 2)
    with pytest.raises(tf.UsageError, match=r"scale was exported as 2.0.* give scale=2.0"):
        program(x)
    with pytest.raises(tf.UsageError, match=r"flag was exported as True and cannot be False"):
        program(x, 2.0, False)


def test_two_calls_do_not_make_a_product():
    class Three(nn.Module):
        def forward(self, a, b, c):
            return a.sum() + b.sum() + c * 2

    sets = [(tuple(torch.ones(n) for n in sizes), {}) for sizes in ((2, 3, 6), (4, 5, 20))]
    report = tf.export(Three(), sets).report
    assert report.ok, report.problems
    assert len(report.data["dimensions"]) == 3
