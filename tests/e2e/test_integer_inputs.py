"""An integer that differs between calls is an input of the ONNX model, or is refused by name."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import torchferry as tf
from torchferry.capturer import capture
from torchferry.errors import UsageError
from torchferry.observer import Observation
from torchferry.observer.tree import input_sizes, program_inputs

pytestmark = pytest.mark.filterwarnings("ignore")


class Head(torch.nn.Module):
    def forward(self, x: torch.Tensor, n: int, k: int = 2) -> Any:
        return {"rows": x[:, :n] * n + k, "next": n + 1, "all": torch.arange(n) - k}


class Softmax(torch.nn.Module):
    def forward(self, x: torch.Tensor, dim: int) -> torch.Tensor:
        return x.softmax(dim)


class Shift(torch.nn.Module):
    def forward(self, x: torch.Tensor, shifts: dict[str, int]) -> torch.Tensor:
        return torch.cat([x[shifts["back"] :], x + shifts["back"]])


def observed(model: torch.nn.Module, *sets: Any) -> Observation:
    with tf.observe(model.eval()) as seen:
        for one in sets:
            model(*one)
    return seen


def test_it_is_an_input_and_is_right_at_other_values(tmp_path: Any) -> None:
    model = Head()
    made = tf.export(model, observed(model, (torch.rand(3, 8), 4), (torch.rand(5, 9), 6)))
    assert made.report.ok
    assert [(v.name, str(v.shape)) for v in made.model.graph.inputs] == [
        ("x", "[batch_size,x_dim_1]"), ("n", "[]"),
    ]  # fmt: skip
    x = torch.rand(7, 11)
    for n in (0, 1, 5, 11):
        assert tf.max_diff(model(x, n), made(x, n))["abs"] == 0
    made.save(tmp_path / "head.onnx")
    again = tf.load(tmp_path / "head.onnx")
    assert again(x, n=3)["next"] == 4
    with pytest.raises(UsageError, match="input n is T7r1, and was exported as an integer"):
        again(x, torch.tensor([3]))
    with pytest.raises(UsageError, match="input n is float, and was exported as an integer"):
        again(x, 3.0)


def test_it_may_be_negative_and_stand_inside_others() -> None:
    model = Shift()
    sets = [(torch.rand(n, 8), {"back": -b}) for n, b in ((9, 2), (8, 3))]
    made = tf.export(model, observed(model, *sets))
    assert made.report.ok
    assert [v.name for v in made.model.graph.inputs] == ["x", "shifts.back"]
    x = torch.rand(6, 8)
    assert tf.max_diff(model(x, {"back": -5}), made(x, {"back": -5}))["abs"] == 0


def test_what_the_code_fixes_is_named() -> None:
    model = Softmax()
    seen = observed(model, (torch.rand(3, 8, 4), 1), (torch.rand(5, 9, 4), 2))
    (fixed,) = capture(model, seen).fixed
    assert (fixed.argument, fixed.axis, fixed.name) == ("dim", -1, "dim")
    assert str(fixed).startswith(f"integer dim was fixed to {fixed.size} by {__file__}:")
    assert str(fixed).endswith(": return x.softmax(dim)")
    report = tf.export(model, seen).report
    assert not report.ok
    assert any("integer dim was fixed to" in problem for problem in report.problems)


def test_a_program_that_was_exported_before() -> None:
    model, dynamic = Head(), torch.export.Dim.DYNAMIC
    program = torch.export.export(
        model, (torch.rand(3, 8), 4), dynamic_shapes=({0: dynamic}, dynamic)
    )
    sizes = {path: list(input_sizes(node)) for path, node in program_inputs(program)}
    assert sizes == {(0,): [0, 1], (1,): [-1]}
    made = tf.to_onnx(program)
    x = torch.rand(2, 8)
    assert tf.max_diff(model(x, 7), made(x, 7))["abs"] == 0
