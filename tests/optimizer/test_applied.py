"""Every rewrite is kept as two models that run and agree."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx.reference import ReferenceEvaluator
from rewriting import parse

from torchferry.errors import UsageError
from torchferry.optimizer import OptimizationOptions
from torchferry.optimizer.applied import AppliedRewrites

TEXT = """g (float[N,3] x, float[N,3] z) => (float[N,3] y, float[N,3] w) {
  two = Constant<value_float=2.0>() three = Constant<value_float=3.0>()
  a = Mul(x, two) b = Mul(a, three) y = Neg(b) i = Identity(z) w = Neg(i) }"""


def optimized(folder):
    options = OptimizationOptions("default-Fold", dump_applied_patterns=folder)
    return options.apply(parse(TEXT))


def test_each_rewrite_is_written(tmp_path):
    optimized(str(tmp_path / "new" / "folder"))
    folder = tmp_path / "new" / "folder"
    names = sorted(path.name for path in folder.iterdir())
    (before,) = [name for name in names if "Mul" in name and "before" in name]
    assert any(name.endswith("_Identity_before.onnx") for name in names)
    assert not any(name.endswith("_Identity_after.onnx") for name in names)
    models = [onnx.load(folder / n) for n in (before, before.replace("before", "after"))]
    x = np.ones((2, 3), np.float32)
    results = [ReferenceEvaluator(model).run(None, {"x": x})[0] for model in models]
    np.testing.assert_array_equal(results[0], results[1])
    np.testing.assert_array_equal(results[0], 6 * x)
    assert [o.name for o in models[0].graph.output] == [o.name for o in models[1].graph.output]


def test_without_a_folder_nothing_is_written(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    OptimizationOptions("default").apply(parse(TEXT))
    assert not list(tmp_path.iterdir())


def test_a_folder_that_cannot_be_made_is_refused(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="cannot make the folder"):
        optimized(tmp_path / "file" / "folder")


def test_large_constants_are_inputs(tmp_path):
    numbers = ", ".join(["1.5"] * 300)
    model = parse(
        "g (float[N,300] x) => (float[N,300] y) "
        f"{{ w = Constant<value_floats=[{numbers}]>() y = Add(x, w) }}"
    )
    node = next(node for node in model.graph if node.op_type == "Add")
    part = AppliedRewrites(tmp_path).part([node], {"": 20})
    assert [value.name for value in part.graph.input] == ["x", "w"]
    assert not part.graph.initializer
    onnx.checker.check_model(part, full_check=True)


def test_nodes_stand_in_order_and_bodies_read_from_outside(tmp_path):
    text = """g (bool c, float[2] x) => (float[2] y) { a = Neg(x) b = Abs(a)
      y = If(c) <then_branch = t () => (float[2] p) { p = Exp(b) },
                 else_branch = e () => (float[2] q) { q = Neg(x) }> }"""
    nodes = list(parse(text).graph)
    part = AppliedRewrites(tmp_path).part(nodes[::-1], {"": 20})
    assert [node.op_type for node in part.graph.node] == ["Neg", "Abs", "If"]
    assert {value.name for value in part.graph.input} == {"c", "x"}
    onnx.checker.check_model(part, full_check=True)
