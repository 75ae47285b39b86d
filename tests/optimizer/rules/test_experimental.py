from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime
import pytest
from rewriting import feeds_for, parse, structure

from torchferry.optimizer import OptimizationOptions
from torchferry.optimizer.kernels import library
from torchferry.optimizer.rules.experimental import (
    fuse_element_wise,
    kernel_library,
    save_library,
)

pytestmark = pytest.mark.skipif(library.compiler() is None, reason="no C compiler")

SILU = """g (float[a,b,64] x, float[a,b,64] y, float[64] w, float[a,1,1] m, bool[a,b,1] c)
=> (float[a,b,64] z) { s = Sigmoid(x) g = Mul(s, x) h = Mul(g, y) k = Mul(h, w) l = Add(k, m)
e = Erf(l) z = Where(c, e, l) }"""
SIZES = tuple(
    {"a": a, "b": b} for a, b in ((2, 7), (1, 1), (0, 3), (3, 0), (1, 300), (33, 1), (5, 200))
)


@pytest.fixture(autouse=True, scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TORCHFERRY_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


def run(
    model: ir.Model, feeds: dict[str, np.ndarray], threads: int = 1, output: int = 0
) -> np.ndarray:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    if kernel_library(model) is not None:
        options.register_custom_ops_library(str(kernel_library(model)))
    content = ir.to_proto(model).SerializeToString()
    return onnxruntime.InferenceSession(content, options).run(None, feeds)[output]


@pytest.mark.parametrize("sizes", SIZES)
def test_a_run_becomes_one_node(sizes: dict[str, int]) -> None:
    before, after = parse(SILU), parse(SILU)
    assert fuse_element_wise(after) == 6
    (node,) = after.graph
    assert node.domain == "torchferry.kernels"
    assert [value.name for value in node.inputs] == ["x", "y", "w", "m", "c"]
    assert str(after.graph.outputs[0].shape) == str(before.graph.outputs[0].shape)
    onnx.checker.check_model(ir.to_proto(after))
    feeds = feeds_for(before, sizes)
    np.testing.assert_allclose(run(after, feeds), run(before, feeds), 1e-6, 1e-6)


def test_one_run_reads_another() -> None:
    text = """g (float[a,8] x, float[a,8] y) => (float[a,8] z, float[a,8] q) { s = Exp(x)
        t = Neg(s) u = Tanh(t) z = Mul(u, y) v = Softmax(t) w = Sqrt(v) q = Sub(w, z) }"""
    before, after = parse(text), parse(text)
    fuse_element_wise(after)
    kernels = [node for node in after.graph if node.domain == "torchferry.kernels"]
    assert len(kernels) == 3
    onnx.checker.check_model(ir.to_proto(after))
    for index in (0, 1):
        feeds = feeds_for(before, {"a": 3})
        np.testing.assert_allclose(
            run(after, feeds, output=index), run(before, feeds, output=index), 1e-6, 1e-6
        )


@pytest.mark.parametrize("threads", [1, 3])
def test_many_elements_are_shared_among_threads(threads: int) -> None:
    before, after = parse(SILU), parse(SILU)
    fuse_element_wise(after)
    feeds = feeds_for(before, {"a": 7, "b": 501})
    np.testing.assert_allclose(run(after, feeds, threads), run(before, feeds), 1e-6, 1e-6)


BROADCAST = """g (float[a,b] x, float[c,d] y) => (float[a,b] z) { s = Exp(x) t = Add(s, y)
u = Tanh(t) z = Neg(u) }"""


@pytest.mark.parametrize(
    ("x", "y"),
    [
        ((3, 300), (3, 1)), ((3, 300), (1, 300)), ((300, 1), (1, 300)), ((4, 5), (1, 1)),
        ((1, 1), (6, 600)), ((600, 1), (600, 1)), ((1, 7), (4, 7)), ((0, 1), (1, 7)),
        ((2, 20000), (2, 1)),
    ],
)  # fmt: skip
def test_sizes_that_turn_out_to_be_one(x: tuple[int, int], y: tuple[int, int]) -> None:
    before, after = parse(BROADCAST), parse(BROADCAST)
    for model in (before, after):
        for value in (*model.graph[1].outputs, *model.graph[2].outputs, *model.graph.outputs):
            value.shape = ir.Shape(["p", "q"])
    assert fuse_element_wise(after) >= 1
    random = np.random.default_rng(0)
    feeds = {"x": random.normal(size=x).astype("f"), "y": random.normal(size=y).astype("f")}
    np.testing.assert_allclose(run(after, feeds), run(before, feeds), 1e-6, 1e-6)


def test_shapes_that_do_not_fit_are_refused() -> None:
    model = parse(BROADCAST)
    for value in (*model.graph[1].outputs, *model.graph[2].outputs, *model.graph.outputs):
        value.shape = ir.Shape(["p", "q"])
    fuse_element_wise(model)
    feeds = {"x": np.ones((2, 3), "f"), "y": np.ones((2, 4), "f")}
    with pytest.raises(
        onnxruntime.capi.onnxruntime_pybind11_state.InvalidArgument, match="do not fit"
    ):
        run(model, feeds)


def test_nothing_to_do_and_done_already() -> None:
    model = parse("g (float[a] x) => (float[a] z) { z = Exp(x) }")
    before = structure(model)
    assert fuse_element_wise(model) == 0
    assert (structure(model), kernel_library(model)) == (before, None)
    model = parse(SILU)
    assert fuse_element_wise(model) > 0
    assert fuse_element_wise(model) == 0


def test_it_runs_when_the_other_rules_are_done() -> None:
    text = """g (float[a,8] x) => (float[a,8] z) { one = Constant<value = float {1.0}>()
        i = Identity(x) s = Sigmoid(i) m = Mul(s, i) n = Mul(m, one) z = Exp(n) }"""
    model = OptimizationOptions("default+onnxruntime+experimental").apply(parse(text))
    (node,) = model.graph
    assert node.op_type.startswith("QuickGeluExp_")
    model = OptimizationOptions("experimental", verifies=True).apply(parse(text))
    assert [node.domain for node in model.graph].count("torchferry.kernels") == 1
    assert "Identity" in [node.op_type for node in model.graph]


def test_the_library_is_put_beside_the_model(tmp_path: Path) -> None:
    model = parse(SILU)
    assert save_library(model, tmp_path / "silu.onnx") is None
    fuse_element_wise(model)
    copy = save_library(model, tmp_path / "silu.onnx")
    assert copy == tmp_path / "silu.kernels.so"
    assert copy.read_bytes() == kernel_library(model).read_bytes()
    assert [file.name for file in tmp_path.iterdir()] == ["silu.kernels.so"]
    assert kernel_library(ir.to_proto(model)) == kernel_library(model)


def test_a_model_cannot_name_a_library_elsewhere() -> None:
    model = parse(SILU)
    model.metadata_props["pkg.torchferry.kernels"] = "../../evil.so"
    assert kernel_library(model) == library.library_folder() / "evil.so"
