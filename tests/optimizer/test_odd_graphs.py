"""Graphs that few exporters write and every one may: nothing crashes, nothing changes."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from torchferry.optimizer import OptimizationOptions, optimize

SETS = ("default", "default+onnxruntime")
X = np.array([[1, -2, 3], [-4, 5, 0.5]], np.float32)
ONE = np.ones(3, np.float32)

# Name: the text of a model, and a call of it.
TEXTS: dict[str, tuple[str, dict[str, Any]]] = {
    "a size of 0": (
        ('<ir_version: 10, opset_import: ["" : 20]> g (float[a,3] x) => (float[m,n] y) {'
        " s = Constant<value_ints=[0,5]>() r = Constant<value_ints=[3,0]>()"
        " t = Reshape<allowzero=1>(x, r) y = Reshape<allowzero=1>(t, s) }"),
        {"x": np.zeros((0, 3), np.float32)},
    ),
    "a sum that is one of nothing": (
        ('<ir_version: 10, opset_import: ["" : 20]> g (float[a,3] x) => (float[m,n] y) {'
        " i = Constant<value_ints=[0]>() y = ReduceSum(x, i) }"),
        {"x": np.zeros((0, 3), np.float32)},
    ),
    "no axes": (
        ('<ir_version: 10, opset_import: ["" : 20]> g (float[] x) => (float[] y) {'
        " z = Constant<value_float=0.0>() i = Constant<value_ints=[0]>() t = Add(x, z)"
        " u = Unsqueeze(t, i) y = Squeeze(u) }"),
        {"x": np.array(3, np.float32)},
    ),
    "a zero that adds axes": (
        ('<ir_version: 10, opset_import: ["" : 20]> g (float[a] x) => (float[1,1,a] y) {'
        " z = Constant<value = float[1,1,1] {0.0}>() y = Add(x, z) }"),
        {"x": ONE},
    ),
    "a number of two infinities": (
        ('<ir_version: 10, opset_import: ["" : 20]> g (float[a] x) => (float[a] y) {'
        " z = Constant<value_float=0.0>() y = Mul(x, z) }"),
        {"x": np.array([np.inf, np.nan, -1], np.float32)},
    ),
    "values of one name in two branches": (
        ('<ir_version: 10, opset_import: ["" : 20]> g (float[a] x, bool c) => (float[a] y) {'
        " y = If(c) <then_branch = t () => (float[a] o) { k = Neg(x) n = Neg(k) o = Identity(n) },"
        " else_branch = e () => (float[a] o) { k = Relu(x) o = Identity(k) }> }"),
        {"x": ONE, "c": np.array(False)},
    ),
    "a branch that only passes on": (
        ('<ir_version: 10, opset_import: ["" : 20]> g (float[a] x0, bool c) => (float[a] y) {'
        " x = Relu(x0) y = If(c) <then_branch = t () => (float[a] o) { o = Identity(x) },"
        " else_branch = e () => (float[a] p) { n = Neg(x) p = Neg(n) }> }"),
        {"x0": ONE, "c": np.array(False)},
    ),
    "a function that passes its input on": (
        ('<ir_version: 10, opset_import: ["" : 20, "my.own" : 1]> '
        "g (float[a] x) => (float[a] y, float[a] z) { y, z = my.own.H(x) }"
        ' <domain: "my.own", opset_import: ["" : 20]> H (a) => (o, p) {'
        " o = Identity(a) q = Relu(a) p = Identity(q) }"),
        {"x": -ONE},
    ),
    "an attribute of the function around": (
        ('<ir_version: 10, opset_import: ["" : 20, "my.own" : 1]> '
        "g (float[a] x) => (float[a] y) { y = my.own.G<alpha=0.3>(x) }"
        ' <domain: "my.own", opset_import: ["" : 20]> G <alpha> (a) => (o) {'
        " t = LeakyRelu<alpha: float = @alpha>(a) o = Identity(t) }"),
        {"x": -ONE},
    ),
    "what training makes": (
        ('<ir_version: 10, opset_import: ["" : 15]> g (float[2,3] x, float[3] w) => '
        "(float[2,3] y, float[3] m, float[3] v) {"
        " y, m, v = BatchNormalization<training_mode=1>(x, w, w, w, w) }"),
        {"x": X, "w": ONE},
    ),
    "opset 7 in its own words": (
        ('<ir_version: 4, opset_import: ["" : 7]> g (float[2,3] x, float[3] w) => (float[2,3] y) {'
        " t = BatchNormalization(x, w, w, w, w) u = Dropout<ratio=0.5>(t)"
        " c = Clip<min=0.0>(u) y = Clip<max=0.5>(c) }"),
        {"x": X, "w": ONE},
    ),
    "axes as attributes": (
        ('<ir_version: 7, opset_import: ["" : 12]> g (float[a,3] x) => (float[a,1] y) {'
        " p, q = Split<axis=1, split=[1,2]>(x) t = Concat<axis=1>(p, q)"
        " s = ReduceSum<axes=[1]>(t) u = Unsqueeze<axes=[0]>(s) y = Squeeze<axes=[0]>(u) }"),
        {"x": X},
    ),
    "Softmax as it was": (
        ('<ir_version: 5, opset_import: ["" : 10]> g (float[a,3] x) => (float[a,3] y) {'
        " u = Softmax<axis=0>(x) y = Identity(u) }"),
        {"x": X},
    ),
    "parts of a sequence": (
        ('<ir_version: 10, opset_import: ["" : 20]> g (float[a,3] x) => (float[a,3] y) {'
        " i = Constant<value_int=-1>() n = Neg(x) s = SequenceConstruct(x, n)"
        " y = SequenceAt(s, i) }"),
        {"x": X},
    ),
    "a sequence of rows": (
        ('<ir_version: 10, opset_import: ["" : 20]> g (float[2,3] x) => (float[n] y) {'
        " i = Constant<value_int=1>() s = SplitToSequence<axis=0, keepdims=0>(x)"
        " y = SequenceAt(s, i) }"),
        {"x": X},
    ),
    "optional": (
        ('<ir_version: 10, opset_import: ["" : 20]> g (float[a,3] x) => (float[a,3] y, bool e) {'
        " o = Optional(x) e = OptionalHasElement(o) y = OptionalGetElement(o) }"),
        {"x": X},
    ),
    "backwards": (
        ('<ir_version: 10, opset_import: ["" : 20]> g (float[a,3] x) => (float[a,3] y) {'
        " s = Constant<value_ints=[-1]>() e = Constant<value_ints=[-9999]>()"
        " i = Constant<value_ints=[1]>() t = Slice(x, s, e, i, s) y = Slice(t, s, e, i, s) }"),
        {"x": X},
    ),
    "an integer that loses its rest": (
        ('<ir_version: 10, opset_import: ["" : 20]> g (int64[a] x) => (int64[a] y) {'
        " k = Constant<value_int=2>() t = Div(x, k) y = Mul(t, k) }"),
        {"x": np.array([3, -3, 5])},
    ),
    "a type between that rounds": (
        ('<ir_version: 10, opset_import: ["" : 20]> g (float[a] x) => (float[a] y) {'
        " t = Cast<to=6>(x) y = Cast<to=1>(t) }"),
        {"x": np.array([1.5, -2.7], np.float32)},
    ),
    "an input that is an output": (
        ('<ir_version: 10, opset_import: ["" : 20]> g (float[a] x) => (float[a] y, float[a] x) {'
        " t = Identity(x) y = Relu(t) }"),
        {"x": ONE},
    ),
    "an input twice": (
        ('<ir_version: 10, opset_import: ["" : 20]> g (float[a] x) => (float[a] y, float[a] z) {'
        " y = Identity(x) z = Identity(x) }"),
        {"x": ONE},
    ),
    "a size named as a value": (
        ('<ir_version: 10, opset_import: ["" : 20]> '
        "g (float[s,2] x, float[m,2] v) => (float[k,2] y) { s = Shape<start=0, end=1>(x)"
        " m = Constant<value_ints=[2]>() t = Concat<axis=0>(s, m) r = Reshape(x, t)"
        " y = Add(r, v) }"),
        {"x": np.ones((3, 2), np.float32), "v": np.ones((1, 2), np.float32)},
    ),
    "operators of onnxruntime": (
        ('<ir_version: 10, opset_import: ["" : 20, "com.microsoft" : 1]> '
        "g (float[a,3] x) => (float[a,a] y) { t = com.microsoft.Gelu(x) u = Identity(t)"
        " y = com.microsoft.FusedMatMul<transB=1, alpha=0.5>(u, u) }"),
        {"x": X},
    ),
    "a domain of its own": (
        ('<ir_version: 10, opset_import: ["" : 20, "ai.onnx.ml" : 1]> '
        "g (float[a,3] x) => (float[a,3] y) {"
        " t = ai.onnx.ml.Scaler<offset=[0.0], scale=[1.0]>(x) y = Identity(t) }"),
        {"x": X},
    ),
}  # fmt: skip


def tensor(name: str, content: Any) -> TensorProto:
    return numpy_helper.from_array(np.asarray(content), name)


def info(name: str, shape: Any, kind: int = TensorProto.FLOAT) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, kind, shape)


def model_of(nodes, inputs, outputs, weights=(), opset=20, version=10) -> onnx.ModelProto:
    graph = helper.make_graph(nodes, "g", inputs, outputs, list(weights))
    opsets = [helper.make_opsetid("", opset)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=version)


node = helper.make_node
STRING = TensorProto.STRING
MODELS: dict[str, tuple[onnx.ModelProto, dict[str, Any]]] = {
    "names with dots": (
        model_of(
            [node("Identity", ["a.b/c:0"], ["t.1"], "n/x.1"), node("Relu", ["t.1"], ["y:0"])],
            [info("a.b/c:0", ["a.x", 3])], [info("y:0", ["a.x", 3])],
        ), {"a.b/c:0": X},
    ),
    "weights that are inputs, as before IR 4": (
        model_of(
            [node("Add", ["x", "w"], ["t"]), node("Identity", ["t"], ["y"])],
            [info("x", ["a", 3]), info("w", [3])], [info("y", None)], [tensor("w", ONE)], 8, 3,
        ), {"x": X},
    ),
    "a weight with a default": (
        model_of(
            [node("Add", ["x", "w"], ["t"]), node("Add", ["t", "w"], ["y"])],
            [info("x", ["a", 3]), info("w", [1])], [info("y", None)],
            [tensor("w", np.zeros(1, np.float32))],
        ), {"x": X, "w": np.array([5], np.float32)},
    ),
    "a weight that is an output": (
        model_of(
            [node("Relu", ["x"], ["y"]), node("Identity", ["w"], ["z"])],
            [info("x", ["a", 3])], [info("y", None), info("w", [3]), info("z", None)],
            [tensor("w", ONE)],
        ), {"x": X},
    ),
    "strings": (
        model_of(
            [
                node("Concat", ["k", "k"], ["kk"], axis=0),
                node("Concat", ["x", "kk"], ["t"], axis=0), node("Identity", ["t"], ["y"]),
            ],
            [info("x", ["a"], STRING)], [info("y", None, STRING)],
            [helper.make_tensor("k", STRING, [1], [b"hi"])], 19,
        ), {"x": np.array(["a", "b"], object)},
    ),
    "a large weight, turned": (
        model_of(
            [node("Transpose", ["w"], ["t"], perm=[1, 0]), node("MatMul", ["x", "t"], ["y"])],
            [info("x", ["a", 3])], [info("y", None)],
            [tensor("w", np.arange(1 << 20, dtype=np.float32).reshape(-1, 4)[:, :3] / (1 << 20))],
        ), {"x": X},
    ),
    "weights of four bits": (
        model_of(
            [
                node("DequantizeLinear", ["w", "s"], ["f"], axis=0, block_size=2),
                node("MatMul", ["x", "f"], ["y"]),
            ],
            [info("x", ["a", 4])], [info("y", None)],
            [
                helper.make_tensor("w", TensorProto.INT4, [4, 2], [1, 2, 3, -4, 5, 6, -7, -8]),
                tensor("s", np.ones((2, 2), np.float32)),
            ], 21,
        ), {"x": np.ones((2, 4), np.float32)},
    ),
    "no nodes": (model_of([], [info("x", ["a"])], [info("x", ["a"])]), {"x": ONE}),
}  # fmt: skip


def case(name: str) -> tuple[onnx.ModelProto, dict[str, Any]]:
    if name in MODELS:
        return MODELS[name]
    text, feeds = TEXTS[name]
    return onnx.parser.parse_model(text), feeds


def run(model: onnx.ModelProto, feeds: dict[str, Any]) -> list[Any]:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    return session.run(None, feeds)


@pytest.mark.parametrize("name", [*TEXTS, *MODELS])
def test_nothing_changes(name: str) -> None:
    model, feeds = case(name)
    wanted = run(model, feeds)
    shapes = [value.type.tensor_type.HasField("shape") for value in model.graph.output]
    known = all(shapes) and name != "a domain of its own"  # what the checker asks for
    for patterns in SETS:
        after = optimize(ir.from_proto(model), patterns, verifies=known)
        proto = ir.to_proto(after)
        for want, got in zip(wanted, run(proto, feeds), strict=True):
            assert (want.dtype, want.shape) == (got.dtype, got.shape)
            if want.dtype.kind == "f":
                np.testing.assert_allclose(got, want, 1e-5, 1e-6)
            else:
                np.testing.assert_array_equal(got, want)
        kept = [item.op_type for item in proto.graph.node]
        again = ir.to_proto(optimize(after, patterns))
        assert [item.op_type for item in again.graph.node] == kept


@pytest.mark.parametrize("name", [*TEXTS, *MODELS])
def test_for_every_processor(name: str) -> None:
    for processor in ("CUDA", "CPU,CUDA"):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            model = ir.from_proto(case(name)[0])
            OptimizationOptions("default+onnxruntime", processor=processor).apply(model)
        assert len(model.graph.outputs) == len(case(name)[0].graph.output)
