import numpy as np
import onnx_ir as ir
import onnxruntime
import pytest

from torchferry.capturer import capture
from torchferry.converter import convert
from torchferry.errors import UsageError
from torchferry.graph.runtime import EMPTY_HEADS
from torchferry.observer import Observation
from torchferry.observer.naming import input_name
from torchferry.observer.tree import leaves_of
from torchferry.optimizer import optimize
from torchferry.optimizer.borrowed import fuse
from torchferry.zoo import catalogue
from versions import needs

HEAD = '<ir_version: 10, opset_import: ["" : 20]>\n'
FOLDABLE = """
<ir_version: 10, opset_import: ["" : 20]>
agraph (float[n, 4] x) => (float[n, 4] y)
{
   two = Constant <value_float = 2.0> ()
   three = Constant <value_float = 3.0> ()
   six = Mul(two, three)
   unused = Add(x, six)
   y = Mul(x, six)
}
"""


def run(model, x):
    session = onnxruntime.InferenceSession(ir.to_proto(model).SerializeToString())
    return session.run(None, {session.get_inputs()[0].name: x})[0]


@pytest.mark.parametrize("target", ["onnx", "onnxruntime"])
@pytest.mark.parametrize("rows", [1, 3])
def test_folds_constants_and_keeps_numbers(target, rows):
    x = np.random.default_rng(0).standard_normal((rows, 4)).astype(np.float32)
    model = optimize(ir.from_onnx_text(FOLDABLE), target=target)
    assert [node.op_type for node in model.graph] == ["Mul"]
    np.testing.assert_array_equal(run(model, x), x * 6)


@pytest.fixture(scope="module")
def decoder():
    """A captured decoder and the inputs of its calls, flat and as arrays."""
    entry = catalogue.build("tiny-llm")
    seen = Observation.from_inputs(entry.model, [((), inputs) for inputs in entry.input_sets])
    arrays = [
        {input_name(path): leaf.numpy() for path, leaf in leaves_of((), inputs).items()}
        for inputs in entry.input_sets
    ]
    return capture(entry.model, seen).program, arrays


def outputs_of(model, feeds):
    session = onnxruntime.InferenceSession(ir.to_proto(model).SerializeToString())
    return session.run(None, feeds)


@pytest.mark.slow
def test_no_target_gets_more_nodes_or_other_names(decoder):
    program, calls = decoder
    plain, standard = convert(program), optimize(convert(program), target="onnx")
    fused = optimize(convert(program), target="onnxruntime")
    assert {node.domain for node in standard.graph} == {""}
    # onnxscript's fusions know the graphs of torch.onnx; onnxruntime fuses ours as it loads them
    assert len(fused.graph) <= len(standard.graph) < len(plain.graph)
    for model in (standard, fused):
        assert [v.name for v in model.graph.inputs] == [v.name for v in plain.graph.inputs]
        assert [v.name for v in model.graph.outputs] == [v.name for v in plain.graph.outputs]
        sources = [n.metadata_props.get("pkg.torchferry.source_line") for n in model.graph]
        assert sum(source is not None for source in sources) > 20
        for feeds in calls:
            for before, after in zip(
                outputs_of(plain, feeds), outputs_of(model, feeds), strict=True
            ):
                np.testing.assert_allclose(after, before, atol=2e-5)


def test_unknown_target_is_refused():
    with pytest.raises(UsageError, match="unknown target 'tensorrt': choose one of onnx, onnxr"):
        optimize(ir.from_onnx_text(FOLDABLE), target="tensorrt")


DEFAULT = "<float[3] w = {1.0,2.0,3.0}> { y = Add(x, w) }"


@pytest.mark.parametrize(
    "text",
    [
        "g (float[n,3] x) => (float[n,3] x, float[n,3] y) { y = Relu(x) }",
        f"g (float[n,3] x, float[3] w) => (float[n,3] y) {DEFAULT}",
        'g (string[n] x) => (bool[n] y) { c = Constant<value_strings=["a"]>() y = Equal(x, c) }',
    ],
    ids=["an output that is an input", "an input with a default", "strings"],
)
def test_what_onnxscript_would_break_is_left_alone(text):
    model = ir.from_onnx_text(HEAD + text)
    before = ir.to_proto(model)
    assert fuse(model) == 0
    assert ir.to_proto(model) == before


def test_sizes_without_names_are_not_taken_for_one():
    text = "g (float[q,3] x, float[q,3] y) => (float[q,3] z) { s = Shape(y) z = Expand(x, s) }"
    model = ir.from_onnx_text(HEAD + text)
    for value in (*model.graph.inputs, *model.graph.outputs):
        value.shape = ir.Shape(["?", 3])
    optimize(model, target="onnxruntime", processor="CUDA")
    feeds = {"x": np.ones((1, 3), np.float32), "y": np.ones((2, 3), np.float32)}
    assert outputs_of(model, feeds)[0].shape == (2, 3)


@needs(EMPTY_HEADS)
@pytest.mark.parametrize("size", [0, 1, 3])
def test_fused_attention_takes_every_size(size):
    text = """g (float[b,s,32] q, float[b,s,32] k, float[b,s,32] v) => (float[b,s,32] y) {
      heads = Constant<value_ints=[0,0,4,8]>() whole = Constant<value_ints=[0,0,32]>()
      scale = Constant<value_float=0.35355339>()
      q4 = Reshape(q, heads) k4 = Reshape(k, heads) v4 = Reshape(v, heads)
      qt = Transpose<perm=[0,2,1,3]>(q4) vt = Transpose<perm=[0,2,1,3]>(v4)
      kt = Transpose<perm=[0,2,3,1]>(k4)
      m = MatMul(qt, kt) ms = Mul(m, scale) p = Softmax<axis=-1>(ms)
      o = MatMul(p, vt) ot = Transpose<perm=[0,2,1,3]>(o) y = Reshape(ot, whole) }"""
    plain = ir.from_onnx_text(HEAD + text)
    fused = optimize(ir.from_onnx_text(HEAD + text), "default+onnxscript", processor="CUDA")
    assert "MultiHeadAttention" in {node.op_type for node in fused.graph}
    random = np.random.default_rng(0)
    for batch, length in ((size, 2), (2, size)):
        arrays = random.standard_normal((3, batch, length, 32)).astype(np.float32)
        feeds = dict(zip("qkv", arrays, strict=True))
        (want,), (got,) = outputs_of(plain, feeds), outputs_of(fused, feeds)
        np.testing.assert_allclose(got, want, atol=1e-5)


def test_an_onnxruntime_that_ends_the_process_at_size_0_gets_no_such_node():
    from torchferry.optimizer import OptimizationOptions, Tally

    text = "g (float[n,3] x) => (float[n,3] y) { y = Relu(x) }"
    tally = Tally()
    options = OptimizationOptions("onnxscript", processor="CUDA", onnxruntime="1.28")
    options.apply(ir.from_onnx_text(HEAD + text), tally)
    assert tally.declined == {"onnxscript": {EMPTY_HEADS.before: 1}}


def test_warnings_of_those_passes_are_not_the_users(caplog):
    text = "g (float[n] x) => (float[2] y) { y = Constant<value_floats=[1.0,2.0]>() }"
    optimize(ir.from_onnx_text(HEAD + text), target="onnxruntime", processor="CUDA")
    assert caplog.messages == []
