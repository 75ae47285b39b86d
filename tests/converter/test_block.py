"""Nodes out of values and numbers."""

import numpy as np
import onnx_ir as ir
import pytest
import torch

from torchferry.converter.block import Block
from torchferry.converter.weight import weight_value


def tensor(*shape, dtype=ir.DataType.FLOAT):
    return ir.Value(name="x", shape=ir.Shape(shape), type=ir.TensorType(dtype))


@pytest.fixture
def b():
    return Block(20)


@pytest.mark.parametrize("dtype", [ir.DataType.FLOAT16, ir.DataType.INT32, ir.DataType.DOUBLE])
def test_a_number_gets_the_dtype_of_the_value_beside_it(b, dtype):
    added = b.Add(tensor(2, dtype=dtype), 1)
    assert added.dtype == dtype
    assert b.nodes[0].inputs[1].const_value.numpy().tolist() == 1
    assert b.nodes[0].inputs[1].dtype == dtype


def test_a_list_gets_the_dtype_of_the_schema(b):
    b.Reshape(tensor(2, 3), [6])
    assert b.nodes[0].inputs[1].dtype == ir.DataType.INT64


def test_equal_constants_are_one(b):
    assert b.constant([1, 2]) is b.constant([1, 2])
    assert b.constant([1, 2]) is not b.constant([1, 2], ir.DataType.INT32)
    assert b.constant(0.0) is not b.constant(-0.0)


def test_dtypes_of_results(b):
    x = tensor(2, 3)
    assert b.Equal(x, x).dtype == ir.DataType.BOOL
    assert b.Shape(x).dtype == ir.DataType.INT64
    assert b.Cast(x, to=7).dtype == ir.DataType.INT64
    values, indices = b.TopK(x, [1], outputs=2)
    assert (values.dtype, indices.dtype) == (ir.DataType.FLOAT, ir.DataType.INT64)
    assert b.Where(b.Equal(x, x), x, 0).dtype == ir.DataType.FLOAT


def test_what_is_none_is_left_out(b):
    b.Clip(tensor(2), None, 1)
    assert [value is None for value in b.nodes[0].inputs] == [False, True, False]
    b.LayerNormalization(tensor(2), tensor(2), None, axis=None)
    assert len(b.nodes[1].inputs) == 2
    assert "axis" not in b.nodes[1].attributes


def test_a_whole_number_for_a_float_attribute(b):
    b.LeakyRelu(tensor(2), alpha=1)
    assert b.nodes[0].attributes["alpha"].type == ir.AttributeType.FLOAT


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda b: b.Nonsense(tensor(2)), "opset 20 has no operator Nonsense"),
        (lambda b: b.Attention(tensor(2)), "opset 20 has no operator Attention"),
        (lambda b: b.Relu(tensor(2), alpha=1.0), "Relu has no attribute alpha in opset 20"),
        (lambda b: b.Relu(tensor(2), 1), "Relu takes 1 inputs, not 2"),
    ],
)
def test_what_onnx_has_not_is_refused(b, call, message):
    with pytest.raises(ValueError, match=message):
        call(b)


def test_a_misspelt_method_is_no_operator(b):
    with pytest.raises(AttributeError, match="Block has no reshape"):
        b.reshape(tensor(2))


def test_casts_are_left_out_where_they_do_nothing(b):
    x = tensor(2)
    assert b.cast(x, torch.float32) is x
    assert b.cast(b.constant(2.0), torch.int64).dtype == ir.DataType.INT64
    assert b.nodes == []
    assert b.cast(x, ir.DataType.INT64).dtype == ir.DataType.INT64


def test_vectors_of_sizes(b):
    size = b.dim(tensor("n", 3), 0)
    assert b.dim(tensor("n", 3), 1) == 3
    assert b.vector([2, 3]).const_value.numpy().tolist() == [2, 3]
    assert b.vector([size]) is size
    joined = b.vector([2, 3, size, -1])
    assert [len(v.shape) for v in joined.producer().inputs] == [1, 1, 1]
    assert b.vector([]).shape == (0,)


def test_a_shape_is_taken_once(b):
    x = tensor("n", 3)
    assert b.dim(x, 0) is b.dim(x, -2)
    assert b.shape(tensor(2, 3)).const_value.numpy().tolist() == [2, 3]
    assert b.inner().dim(x, 0) is b.dim(x, 0)
    assert len(b.nodes) == 1


def test_another_domain(b):
    made = b.add("FastGelu", (tensor(2, 3), 1.0), domain="com.microsoft")
    assert (made.producer().domain, made.dtype) == ("com.microsoft", ir.DataType.FLOAT)
    assert b.domains == {"": 20, "com.microsoft": 1}


def test_a_matrix_swapped_is_a_view_of_the_same_memory(b):
    matrix = torch.randn(3, 4)
    value = weight_value(matrix, "w")
    swapped = b.transposed(value)
    assert (swapped.name, tuple(swapped.shape)) == ("w.T", (4, 3))
    assert swapped.const_value.raw.data_ptr() == matrix.data_ptr()
    assert b.transposed(value) is swapped
    tied = b.transposed(weight_value(matrix, "w", shared=True))
    assert tied.producer().op_type == "Transpose"
    assert np.array_equal(swapped.const_value.numpy(), matrix.numpy().T)


def test_complex_numbers_stay_complex_in_another_dtype(b):
    pairs = weight_value(torch.ones(3, dtype=torch.complex64), "z")
    wide = b.cast(pairs, torch.float64)
    assert wide.meta["complex"]
    assert "complex" not in b.cast(b.Gather(pairs, 0, axis=-1), torch.float64).meta
