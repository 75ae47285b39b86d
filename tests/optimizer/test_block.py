import numpy as np
import onnx_ir as ir
import pytest

from torchferry.optimizer.block import Block


@pytest.fixture
def x():
    return ir.val("x", ir.DataType.FLOAT16, ["a", 3])


def test_numbers_take_the_type_beside_them(x):
    b = Block(20)
    b.Mul(0.5, x)
    b.Reshape(x, [0, -1])
    b.Add(x, np.int32(2))
    half, shape, two = b.constants
    assert (half.dtype, shape.dtype, two.dtype) == (
        ir.DataType.FLOAT16, ir.DataType.INT64, ir.DataType.FLOAT16,
    )  # fmt: skip
    assert shape.const_value.numpy().tolist() == [0, -1]


def test_the_type_of_what_was_just_made_is_known(x):
    b = Block(20)
    b.Add(b.Exp(b.Neg(x)), 1)
    assert b.constants[0].dtype == ir.DataType.FLOAT16


def test_inputs_and_attributes_that_are_left_out(x):
    b = Block(20)
    b.Clip(x, None, 1.0, axis=None)
    b.Clip(x, None, None)
    assert b.nodes[0].inputs[1] is None
    assert len(b.nodes[1].inputs) == 1
    assert not b.nodes[0].attributes


def test_outputs_domain_and_likeness(x):
    b = Block(20)
    value = b.BiasGelu(x, x, domain="com.microsoft", like=x)
    assert (value.dtype, value.shape) == (x.dtype, x.shape)
    assert b.domains == {"com.microsoft": 1}
    assert len(b.Split(x, outputs=2)) == 2


def test_the_same_node_again(x):
    b = Block(20)
    node = ir.node("Softmax", [x], {"axis": 1, "old": 2})
    b.again(node, [x], old=None)
    assert {a.name: a.value for a in b.nodes[0].attributes.values()} == {"axis": 1}


def test_constants_by_content():
    b = Block(20)
    assert b.constant(1.5).dtype == ir.DataType.FLOAT
    assert b.constant(2).dtype == ir.DataType.INT64
    assert b.constant([True]).dtype == ir.DataType.BOOL
    assert b.constant([1, 2], ir.DataType.BFLOAT16).const_value.numpy().tolist() == [1, 2]
    assert b.constant(np.zeros((0, 2), np.float64)).shape.numpy() == (0, 2)
    with pytest.raises(AttributeError, match="no ONNX operator is called so"):
        b.relu(1)
