import ml_dtypes
import numpy as np
import onnx
import pytest
import torch

from torchferry.values.dtype import element_type, tensor_of, torch_dtype

NAMES = {"bool": "BOOL", "float32": "FLOAT", "float64": "DOUBLE"}


@pytest.mark.parametrize(
    "name",
    [
        "bool", "uint8", "int8", "uint16", "int16", "uint32", "int32", "uint64", "int64",
        "float16", "float32", "float64", "bfloat16", "complex64", "complex128",
    ],
)  # fmt: skip
def test_numbers_are_those_of_onnx(name):
    number = getattr(onnx.TensorProto, NAMES.get(name, name.upper()))
    assert element_type(getattr(torch, name)) == number
    assert element_type(np.dtype(getattr(ml_dtypes, name, name))) == number
    assert torch_dtype(number) is getattr(torch, name)


def test_small_dtypes():
    for name in ("float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz"):
        number = getattr(onnx.TensorProto, name.upper().replace("_", ""))
        assert element_type(getattr(torch, name)) == number
        assert element_type(np.dtype(getattr(ml_dtypes, name))) == number
    assert element_type(np.dtype(ml_dtypes.int4)) == onnx.TensorProto.INT4


def test_text_and_half_bytes_have_no_dtype():
    for name in ("STRING", "INT4", "UINT4", "FLOAT4E2M1", "UNDEFINED"):
        assert torch_dtype(getattr(onnx.TensorProto, name)) is None


def test_what_onnx_has_not():
    assert element_type(np.dtype("U3")) == onnx.TensorProto.STRING
    assert element_type(np.dtype(object)) == 0
    assert element_type(np.dtype("M8[s]")) == 0


def test_tensor_of_copies_and_takes_any_layout():
    array = np.arange(6, dtype=">i4").reshape(2, 3)[::-1]
    array.flags.writeable = False
    tensor = tensor_of(array)
    assert tensor.tolist() == array.tolist()
    tensor[0, 0] = -1
    assert array[0, 0] == 3


def test_tensor_of_ml_dtypes_and_scalars():
    assert tensor_of(np.array([1.5], ml_dtypes.bfloat16)).dtype is torch.float32
    assert tensor_of(np.float64(2.5)).shape == ()


def test_tensor_of_the_other_type_of_64_bits():
    for dtype in (np.longlong, np.ulonglong):  # PyTorch knows only one of two equal C types
        assert tensor_of(np.array([2**40], dtype)).tolist() == [2**40]
