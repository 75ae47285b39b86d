import ml_dtypes
import numpy as np
import onnx_ir as ir
import onnxruntime
import pytest

from torchferry.optimizer import widen

TEXT = """
<ir_version: 10, opset_import: ["" : 20]>
agraph (bfloat16[n, 4] x, bfloat16[4, 4] w, bool[n, 4] keep)
  => (bfloat16[n, 4] y, bfloat16[n, 4] z)
{
   y = MatMul(x, w)
   s = Mul(y, x)
   z = Where(keep, s, x)
}
"""


def model():
    built = ir.from_onnx_text(TEXT)
    for node in built.graph:
        node.outputs[0].type = built.graph.inputs[0].type
    return built


def run(built, **feeds):
    session = onnxruntime.InferenceSession(ir.to_proto(built).SerializeToString())
    values = {
        name: onnxruntime.OrtValue.ortvalue_from_numpy_with_onnx_type(array.view(np.int16), 16)
        if array.dtype == ml_dtypes.bfloat16
        else onnxruntime.OrtValue.ortvalue_from_numpy(array)
        for name, array in feeds.items()
    }
    names = [value.name for value in session.get_outputs()]
    results = session.run_with_ort_values(names, values)
    return {
        name: np.from_dlpack(_Bits(result)).view(ml_dtypes.bfloat16)
        for name, result in zip(names, results, strict=True)
    }


class _Bits:
    """A bfloat16 OrtValue as 16-bit integers, which numpy can take over."""

    def __init__(self, value):
        import torch

        self.tensor = torch.from_dlpack(value._ortvalue.to_dlpack()).view(torch.int16)

    def __dlpack__(self, **options):
        return self.tensor.__dlpack__(**options)

    def __dlpack_device__(self):
        return self.tensor.__dlpack_device__()


@pytest.mark.parametrize("rows", [1, 3, 0])
def test_rounds_after_every_node_as_bfloat16_arithmetic_does(rows):
    generator = np.random.default_rng(0)
    x = generator.standard_normal((rows, 4)).astype(ml_dtypes.bfloat16)
    w = generator.standard_normal((4, 4)).astype(ml_dtypes.bfloat16)
    keep = generator.random((rows, 4)) > 0.5
    built = model()
    assert widen(list(built.graph)) == {"MatMul": 1, "Mul": 1, "Where": 1}
    got = run(built, x=x, w=w, keep=keep)
    y = (x.astype(np.float32) @ w.astype(np.float32)).astype(ml_dtypes.bfloat16)
    s = (y.astype(np.float32) * x.astype(np.float32)).astype(ml_dtypes.bfloat16)
    assert np.array_equal(got["y"], y)
    assert np.array_equal(got["z"], np.where(keep, s, x))


def test_keeps_names_and_casts_each_value_once():
    built = model()
    widen(list(built.graph))
    casts = [n for n in built.graph if n.op_type == "Cast"]
    assert [v.name for v in built.graph.outputs] == ["y", "z"]
    assert sum(n.inputs[0].name == "x" for n in casts) == 1
    names = [v.name for n in built.graph for v in n.outputs]
    assert len(names) == len(set(names))
    assert all(v.dtype is not None for n in built.graph for v in n.outputs)


def test_leaves_the_other_nodes_alone():
    built = model()
    assert widen([n for n in built.graph if n.op_type == "Mul"]) == {"Mul": 1}
    assert sum(n.op_type == "Cast" for n in built.graph) == 3
    assert next(n for n in built.graph if n.op_type == "MatMul").inputs[0].name == "x"


def test_a_node_without_a_graph_is_refused():
    with pytest.raises(ValueError, match="stands in no graph"):
        widen([ir.node("Neg", [ir.Value(name="x")])])
