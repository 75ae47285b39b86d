import numpy as np
import onnx_ir as ir
import onnxruntime
import pytest

from torchferry.capturer import capture
from torchferry.converter import convert
from torchferry.errors import UsageError
from torchferry.observer import Observation
from torchferry.observer.naming import input_name
from torchferry.observer.tree import leaves_of
from torchferry.optimizer import optimize
from torchferry.zoo import catalogue

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
