"""Type promotion: PyTorch itself says what is right."""

import onnx_ir as ir
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from torchferry.converter.write.promote import onnx_dtype, promoted_dtype, torch_dtype

DTYPES = [
    torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.float16,
    torch.bfloat16, torch.float32, torch.float64,
]  # fmt: skip


def value(dtype, rank):
    return ir.Value(name="x", shape=ir.Shape([2] * rank), type=ir.TensorType(onnx_dtype(dtype)))


TENSORS = st.tuples(st.sampled_from(DTYPES), st.integers(0, 2))
NUMBERS = st.sampled_from([True, 3, 2.5])
OPERANDS = st.lists(st.one_of(TENSORS, NUMBERS), min_size=2, max_size=2).filter(
    lambda operands: any(isinstance(operand, tuple) for operand in operands)
)


@given(OPERANDS)
def test_two_operands_are_promoted_as_torch_does(operands):
    tensors = [torch.ones([2] * o[1], dtype=o[0]) if isinstance(o, tuple) else o for o in operands]
    values = [value(*o) if isinstance(o, tuple) else o for o in operands]
    assert promoted_dtype(values) == torch.result_type(*tensors)
    divided = torch.true_divide(tensors[0], tensors[1])
    assert promoted_dtype(values, "float") == divided.dtype


@given(st.sampled_from(DTYPES))
def test_a_sum_counts_bools(dtype):
    assert promoted_dtype([value(dtype, 1)], "bool_to_long") == (
        torch.int64 if dtype is torch.bool else dtype
    )


def test_a_size_counts_as_a_number():
    size = value(torch.int64, 0)
    size.meta["number"] = True
    assert promoted_dtype([value(torch.int32, 0), size]) == torch.int32
    assert promoted_dtype([value(torch.float16, 1), size]) == torch.float16


def test_complex_numbers():
    pair = value(torch.float32, 2)
    pair.meta["complex"] = True
    assert promoted_dtype([pair, value(torch.float64, 1)]) == torch.complex128
    assert promoted_dtype([value(torch.float32, 1), 2j]) == torch.complex64


def test_nothing_to_promote():
    with pytest.raises(ValueError, match="nothing to promote"):
        promoted_dtype([None, "x"])


@pytest.mark.parametrize("dtype", [*DTYPES, torch.float8_e4m3fn, torch.uint16])
def test_dtypes_there_and_back(dtype):
    assert torch_dtype(onnx_dtype(dtype)) == dtype


def test_dtypes_that_one_side_lacks():
    with pytest.raises(ValueError, match=r"no element type for torch\.quint8"):
        onnx_dtype(torch.quint8)
    with pytest.raises(ValueError, match="no dtype for STRING"):
        torch_dtype(ir.DataType.STRING)
