from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime
import pytest

from torchferry.graph.runtime import NAN_ERF
from torchferry.optimizer.kernels import library
from torchferry.optimizer.kernels.expression import (
    element,
    is_element_wise,
    literal,
    operands,
)
from torchferry.optimizer.rule import Declined
from torchferry.optimizer.rules.experimental import fuse_element_wise, kernel_library
from versions import can

needs_compiler = pytest.mark.skipif(library.compiler() is None, reason="no C compiler")
HEAD = '<ir_version: 10, opset_import: ["" : 20, "com.microsoft" : 1]>\n'

# Inputs: x, y float; i, j int64; p, q bool; k int32. What each line computes is followed by a Neg,
# or by a Not, so that it is a run of two.
FLOATS = """
Abs(x) | Neg(x) | Add(x, y) | Sub(x, y) | Mul(x, y) | Div(x, y) | Relu(x) | Exp(x) | Erf(x)
Tanh(x) | Sigmoid(x) | Sqrt(x) | Ceil(x) | Floor(x) | Round(x) | Reciprocal(x) | HardSwish(x)
PRelu(x, y) | Where(p, x, y) | Elu<alpha=0.5>(x) | Gelu(x) | Gelu<approximate="tanh">(x)
HardSigmoid(x) | HardSigmoid<alpha=0.3, beta=0.6>(x) | LeakyRelu<alpha=0.2>(x) | Max(x, y)
Min(x, y, w) | Pow(x, two) | Pow(x, three) | Pow(x, less) | Sum(x, y, w) | Clip(x, low, high)
Clip(x, low) | Clip(x, , high) | Cast<to=1>(i) | Cast<to=1>(p) | Cast<to=1>(k) | Add(x, w)
com.microsoft.QuickGelu<alpha=1.5>(x) | com.microsoft.FastGelu(x, w) | Mul(x, half)
com.microsoft.BiasGelu(x, w) | com.microsoft.Gelu(x) | Add(x, nan) | Mul(x, inf) | Add(x, minus)
"""
WHOLE = "Add(i, j) | Mul(i, j) | Abs(i) | Where(p, i, j) | Cast<to=7>(p) | Cast<to=7>(k)"
TRUTHS = """
Less(x, y) | LessOrEqual(i, j) | Greater(x, y) | GreaterOrEqual(x, y) | Equal(i, j) | And(p, q)
Or(p, q) | Xor(p, q) | Equal(p, q) | IsNaN(x) | Cast<to=9>(x) | Cast<to=9>(i) | Not(p)
"""


def lines() -> Iterator[tuple[str, str, str]]:
    for text, dtype, then in ((FLOATS, "float", "Neg"), (WHOLE, "int64", "Neg"),
                              (TRUTHS, "bool", "Not")):  # fmt: skip
        for item in text.replace("\n", " | ").split(" | "):
            if item.strip():
                yield item.strip(), dtype, then


def model_of_all() -> ir.Model:
    made = list(lines())
    outputs = ", ".join(f"{dtype}[a,b,6] o{n}" for n, (_, dtype, _) in enumerate(made))
    nodes = "\n".join(f"t{n} = {text} o{n} = {then}(t{n})" for n, (text, _, then)
                      in enumerate(made))  # fmt: skip
    numbers = {
        "two": 2.0,
        "three": 3.0,
        "half": 0.5,
        "low": -0.5,
        "high": 0.75,
        "minus": -0.1,
        "less": -1.0,
    }
    text = (
        HEAD + "g (float[a,b,6] x, float[a,b,6] y, float[6] w, int64[a,b,6] i, int64[a,b,6] j, "
        f"bool[a,b,6] p, bool[a,b,6] q, int32[a,b,6] k) => ({outputs}) {{\n{nodes} }}"
    )
    proto = onnx.parser.parse_model(text)
    for name, number in (numbers | {"nan": math.nan, "inf": math.inf}).items():
        proto.graph.initializer.append(onnx.numpy_helper.from_array(np.float32(number), name))
    model = ir.from_proto(onnx.shape_inference.infer_shapes(proto))
    shape = model.graph.inputs[0].shape
    for node in model.graph:  # onnx does not know what those of com.microsoft make
        if node.outputs[0].shape is None:
            node.outputs[0].shape, node.outputs[0].type = shape, ir.TensorType(ir.DataType.FLOAT)
    return model


def feeds_of(model: ir.Model, a: int, b: int) -> dict[str, np.ndarray]:
    random = np.random.default_rng(a + b)
    feeds = {}
    for value in model.graph.inputs:
        shape = [{"a": a, "b": b}.get(str(d), d) for d in value.shape]
        content = random.normal(size=shape) * 3
        if value.name == "x" and content.size > 5:
            content.flat[:5] = (np.nan, np.inf, -np.inf, -0.0, -90.0)
        kind = value.dtype.numpy()
        feeds[value.name] = content > 0 if kind is np.bool_ else content.astype(kind)
    return feeds


def run(model: ir.Model, feeds: dict[str, np.ndarray]) -> list[np.ndarray]:
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4
    if kernel_library(model) is not None:
        options.register_custom_ops_library(str(kernel_library(model)))
    content = ir.to_proto(model).SerializeToString()
    return onnxruntime.InferenceSession(content, options).run(None, feeds)


@needs_compiler
def test_every_expression_computes_what_onnxruntime_does() -> None:
    plain, fused = model_of_all(), model_of_all()
    made = list(lines())
    assert fuse_element_wise(fused) == len(made)
    assert {node.domain for node in fused.graph} == {"torchferry.kernels"}
    for a, b in ((2, 3), (1, 1), (0, 2)):
        feeds = feeds_of(plain, a, b)
        for (text, *_), want, got in zip(made, run(plain, feeds), run(fused, feeds), strict=True):
            assert (want.dtype, want.shape) == (got.dtype, got.shape), text
            if want.dtype != np.float32:
                np.testing.assert_array_equal(got, want, text)
                continue
            # onnxruntime's own treat infinities in ways of their own there; Clip makes them 3e38.
            strange = any(name in text for name in ("elu", "Sigmoid", "Clip"))
            if "Erf" in text and not can(NAN_ERF):
                want[np.isnan(got)] = np.nan
            known = np.abs(want) < 1e30 if strange else slice(None)
            np.testing.assert_allclose(got[known], want[known], 3e-6, 3e-6, err_msg=text)


def node_of(text: str, opset: int = 20) -> ir.Node:
    head = HEAD.replace("20", str(opset), 1)
    proto = onnx.parser.parse_model(f"{head}g (float[n] x, float[n] y, int64[n] i, double[n] d, "
                                    f"bool[n] p) => (float[n] z) {{ z = {text} }}")  # fmt: skip
    proto = onnx.shape_inference.infer_shapes(proto)
    return ir.from_proto(proto).graph[0]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("Add(d, d)", "an element type"),
        ("Div(i, i)", "Div of these element types"),
        ("Add(p, p)", "Add of these element types"),
        ("Pow(x, y)", "no constant number"),
        ("Clip(x, y)", "no constant number"),
        ("Gelu(d)", "an element type"),
    ],
)
def test_what_has_no_expression_is_declined(text: str, said: str) -> None:
    node = node_of(text)
    assert is_element_wise(node)
    with pytest.raises(Declined, match=said):
        element(node, ["a"] * len(operands(node)))


def test_other_operators_are_not_element_wise() -> None:
    assert not is_element_wise(node_of("Softmax(x)"))
    assert not is_element_wise(node_of("Sin(x)"))
    assert not is_element_wise(node_of("com.microsoft.Sigmoid(x)"))


def test_what_is_read_beforehand_is_no_operand() -> None:
    node = node_of("Clip(x)")
    assert [value.name for value in operands(node)] == ["x"]
    with pytest.raises(Declined, match="left out"):
        operands(ir.node("Where", [node.inputs[0], None, node.inputs[0]]))


@pytest.mark.parametrize("number", [0.1, -0.0, 1e-42, 3.4e38, -7.25])
def test_a_number_is_written_exactly(number: float) -> None:
    text = literal(number, ir.DataType.FLOAT).strip("()").removesuffix("f")
    assert float.fromhex(text) == np.float32(number)
    assert math.copysign(1, float.fromhex(text)) == math.copysign(1, number)


def test_numbers_without_digits() -> None:
    assert "nan" in literal(math.nan, ir.DataType.FLOAT)
    assert literal(-math.inf, ir.DataType.FLOAT) == "(-__builtin_inff())"
    assert literal(2.0, ir.DataType.BOOL) == "1"
    with pytest.raises(Declined):
        literal(-(2**63), ir.DataType.INT64)


def test_an_expression_of_many_inputs_is_no_long_one():
    inputs = [ir.val(f"x{i}", ir.DataType.FLOAT, ["a"]) for i in range(16)]
    node = ir.node("Max", inputs)
    node.outputs[0].type = ir.TensorType(ir.DataType.FLOAT)
    assert len(element(node, [value.name for value in inputs]).text) < 1000
