"""Conditions that a graph tests as it runs."""

import numpy as np
import onnx_ir as ir
import onnxruntime
import pytest

from torchferry.converter.block import Block
from torchferry.converter.requirement import required
from torchferry.converter.write.dimension import is_data_dependent


@pytest.mark.parametrize(
    ("size", "expected"),
    [(ir.SymbolicDim("data_dependent_0"), True), (ir.SymbolicDim("2*data_dependent_1 + 1"), True),
     (ir.SymbolicDim("batch_size"), False), (4, False), (ir.SymbolicDim(None), False)],
)  # fmt: skip
def test_sizes_of_data_have_torchs_names(size, expected):
    assert is_data_dependent(size) is expected


def test_a_graph_fails_with_the_message_where_the_condition_is_broken():
    b = Block(20)
    x = ir.val("x", shape=["n", 2], dtype=ir.DataType.FLOAT)
    y = required(b, x, b.Not(b.Equal(b.dim(x, 0), 1)), "one row is too few")
    y.name, y.type = "y", ir.TensorType(ir.DataType.FLOAT)
    graph = ir.Graph(
        [x], [y], nodes=b.nodes, opset_imports={"": 20}, name="g",
        initializers=list({v.name: v for n in b.nodes for v in n.inputs
                           if v is not None and v.const_value is not None}.values()),
    )  # fmt: skip
    model = ir.serde.serialize_model(ir.Model(graph, ir_version=10))
    session = onnxruntime.InferenceSession(model.SerializeToString())
    for rows in (0, 2, 5):
        given = np.ones((rows, 2), np.float32)
        np.testing.assert_array_equal(session.run(None, {"x": given})[0], given)
    with pytest.raises(Exception, match="one row is too few"):
        session.run(None, {"x": np.ones((1, 2), np.float32)})
