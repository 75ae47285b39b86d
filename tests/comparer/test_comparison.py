from __future__ import annotations

import math

import pytest
import torch

from torchferry.comparer.comparison import (
    Comparison,
    Row,
    Side,
    WeightDifference,
    side_of,
)
from torchferry.values.difference import Discrepancy


def test_a_side_counts_what_is_no_number():
    found = side_of(torch.tensor([[1.0, math.nan], [math.inf, -math.inf]]))
    assert found == Side((2, 2), "float32", 1, 2, 1.0, 1.0, 1.0)
    assert side_of(torch.tensor(True)) == Side((), "bool", 0, 0, 1.0, 1.0, 1.0)
    assert side_of(torch.zeros(0, 3, dtype=torch.int64)) == Side((0, 3), "int64")
    assert side_of(torch.tensor([1.0, math.nan]).to(torch.float8_e4m3fn)).nans == 1


def row(**changes):
    values = {
        "name": "v", "node": "n", "op_type": "Add", "origin": "add", "layer": "body",
        "line": "model.py:3", "expected": Side((2,), "float32"), "got": Side((2,), "float32"),
        "error": Discrepancy(abs=0.5, scale=1.0), "verdict": "differs",
    }  # fmt: skip
    return Row(**(values | changes))


def test_the_local_error_is_what_the_verdict_is_about():
    assert row().said.abs == 0.5
    assert row(local=Discrepancy(abs=0.25)).said.abs == 0.25


def test_a_comparison_says_where_the_first_divergence_is():
    found = Comparison((row(),), {}, (), 3, 1, first=row())
    assert not found.ok
    assert str(found) == (
        "first divergence: Add n → v in body\n  differs by 0.5 (scale 1)\n"
        "  stands for add at model.py:3"
    )


def test_the_nodes_that_may_be_at_fault_are_told():
    values = {"rows": (row(),), "outputs": {}, "differing": (), "nodes": 3, "unaligned": 1}
    assert "at fault" not in str(Comparison(**values, first=row(), suspects=("n",)))
    one = Comparison(**values, first=row(), suspects=("m",))
    assert str(one).endswith("\n  at fault is one of: m")
    many = Comparison(**values, first=row(), suspects=tuple("abcdefghij"))
    assert str(many).endswith("\n  at fault is one of: a, b, c, d, e, f, g, h and 2 more")


@pytest.mark.parametrize("changes", [{"differing": ("y",)}, {"captured": False}])
def test_what_makes_a_comparison_fail(changes):
    values = {"rows": (row(),), "outputs": {}, "differing": (), "nodes": 1, "unaligned": 0}
    assert Comparison(**values).ok
    assert not Comparison(**(values | changes)).ok


def test_outputs_alone_may_differ():
    found = Comparison((row(),), {}, ("y",), 1, 0)
    assert str(found) == "0 values agree, 0 have no counterpart; but outputs differ: y"


def weight(**changes):
    values = {
        "name": "head.weight", "initializer": "head.weight", "index": (3, 17), "expected": 0.12,
        "got": 0.135, "abs": 0.015, "wrong": 1, "size": 64, "node": "n",
    }  # fmt: skip
    return WeightDifference(**(values | changes))


def test_weights_come_before_values():
    found = Comparison((row(),), {}, (), 1, 0, first=row(), weights=(weight(),) * 5)
    lines = str(found).splitlines()
    assert lines[0] == (
        "weight head.weight differs at [3, 17]: 0.12 in the model, 0.135 in the ONNX file (max "
        "abs 0.015, in 1 of 64 elements)"
    )
    assert lines[3:5] == ["and 2 more weights differ", "first divergence: Add n → v in body"]
    alone = Comparison((row(verdict="equal"),), {}, (), 1, 0, weights=(weight(),))
    assert not alone.ok
    assert str(alone).endswith("1 values agree, 0 have no counterpart")


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"index": ()}, "head.weight differs: 0.12"),
        ({"initializer": "val_3"}, "weight head.weight (initializer val_3) differs at"),
        ({"expected": 0.5, "got": 0.5000002}, "0.5 in the model, 0.5000002 in the ONNX file"),
        ({"expected": 1.0, "got": math.nan, "abs": math.inf}, "nan in the ONNX file (max abs inf"),
    ],
)
def test_a_weight_in_a_sentence(changes, says):
    assert says in str(weight(**changes))


def test_the_repr_is_short():
    found = Comparison((row(),) * 500, {}, (), 1, 0, first=row(), weights=(weight(),))
    assert repr(found) == "Comparison(ok=False, rows=500, weights=1, first='v')"
    assert repr(Comparison((), {}, (), 1, 0)) == "Comparison(ok=True, rows=0)"
