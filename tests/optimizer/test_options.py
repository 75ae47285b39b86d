from __future__ import annotations

import logging
from typing import Any

import numpy as np
import pytest
from rewriting import parse, run

from torchferry.errors import UsageError
from torchferry.graph.runtime import LEAST_KEY, OLDEST
from torchferry.optimizer import OptimizationOptions, Tally

TEXT = "g (float[N,3] x) => (float[N,3] y) { a = Identity(x) y = Relu(a) }"


@pytest.mark.parametrize(
    ("patterns", "nodes"),
    [(None, 2), ("", 2), ("default", 1), ("default-Identity", 2), (["Identity"], 1)],
)
def test_patterns(patterns: Any, nodes: int) -> None:
    assert len(OptimizationOptions(patterns).apply(parse(TEXT)).graph) == nodes


def test_what_was_done_is_told(caplog: Any) -> None:
    options = OptimizationOptions("default", verbose=1)
    caplog.set_level(logging.INFO, "torchferry")
    assert len(options.apply(parse(TEXT)).graph) == 1
    assert "2 nodes became 1" in caplog.text
    assert "Identity: 1" in caplog.text


def test_experimental_is_for_the_cpu(caplog: Any) -> None:
    text = "g (float[N,3] x) => (float[N,3] y) { a = Exp(x) y = Relu(a) }"
    options = OptimizationOptions("default+experimental", processor="CUDA")
    assert len(options.apply(parse(text)).graph) == 2
    assert "the kernels are for the CPU" in caplog.text


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"patterns": "onnxrutime"}, "unknown patterns 'onnxrutime': choose onnxruntime"),
        ({"processor": "TPU"}, "unknown processor 'TPU'"),
        ({"max_iter": -3}, "max_iter=-3"),
    ],
)
def test_what_does_not_exist_is_refused(wrong: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        OptimizationOptions(**wrong)


def test_combinations_that_exist() -> None:
    OptimizationOptions(patterns=None, constant_folding=False)
    OptimizationOptions("default", constant_folding={"Neg"}, processor="CPU,CUDA", max_iter=3)
    tally = Tally()
    OptimizationOptions("default", constant_folding=False).apply(parse(TEXT), tally)
    assert tally.applied == {"Identity": 1}


def test_weights_of_an_old_model_are_constants() -> None:
    model = parse(
        "g (float[N,3] x, float[3] w) => (float[N,3] y) <float[3] w = {1.0,2.0,3.0}> "
        "{ c = Constant<value=float[3] {1.0,1.0,1.0}>() s = Add(w, c) y = Mul(x, s) }",
        opset=8,
    )
    model.ir_version = 3
    before = run(model, {"x": np.ones((2, 3), np.float32)})
    OptimizationOptions("default", verifies=True).apply(model)
    assert [value.name for value in model.graph.inputs] == ["x"]
    assert [node.op_type for node in model.graph] == ["Mul"]
    np.testing.assert_array_equal(run(model, {"x": np.ones((2, 3), np.float32)}), before)


def test_a_default_value_of_an_input_stays_one() -> None:
    model = parse(
        "g (float[N,3] x, float[3] w) => (float[N,3] y) <float[3] w = {1.0,2.0,3.0}> "
        "{ s = Add(w, w) y = Mul(x, s) }"
    )
    OptimizationOptions().apply(model)
    assert [value.name for value in model.graph.inputs] == ["x", "w"]
    feeds = {"x": np.ones((1, 3), np.float32), "w": np.zeros(3, np.float32)}
    np.testing.assert_array_equal(run(model, feeds)[0], np.zeros((1, 3)))


HIDDEN = """g (float[a,4,b,8] q, float[a,4,t,8] k, float[a,4,t,8] v, bool[a,1,b,t] m)
  => (float[a,4,b,8] y) {
  inf = Constant<value_float=-inf>() zero = Constant<value_float=0.0>()
  kt = Transpose<perm=[0,1,3,2]>(k) x = MatMul(q, kt) w = Where(m, x, inf)
  p0 = Softmax<axis=-1>(w) n = IsNaN(p0) p = Where(n, zero, p0) y = MatMul(p, v) }"""


@pytest.mark.parametrize(
    ("version", "fused", "least"),
    [("1.25.1", False, OLDEST), ("1.27.2", False, OLDEST), ("1.28", True, "1.28")],
)
def test_what_the_onnxruntime_that_runs_it_cannot_do_is_not_fused(
    version: str, fused: bool, least: str
) -> None:
    tally = Tally()
    model = OptimizationOptions(onnxruntime=version).apply(parse(HIDDEN, 23), tally)
    assert ("Attention" in {node.op_type for node in model.graph}) is fused
    assert ("Attention" in tally.declined) is not fused
    assert model.metadata_props[LEAST_KEY] == least


def test_a_model_that_needed_a_version_still_does() -> None:
    model = OptimizationOptions(onnxruntime="1.28").apply(parse(HIDDEN, 23))
    again = OptimizationOptions(onnxruntime="1.25").apply(model)
    assert again.metadata_props[LEAST_KEY] == "1.28"


@pytest.mark.parametrize(
    ("version", "said"),
    [
        ("1.24.4", "knows nothing of onnxruntime 1.24.4"),
        ("new", "write it as 1.28"),
        ("1", "write"),
    ],
)
def test_versions_that_nobody_knows_are_refused(version: str, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        OptimizationOptions(onnxruntime=version)
