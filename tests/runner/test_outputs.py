import numpy as np
import onnx
import onnxruntime
import pytest
import torch

from torchferry.runner import to_tensor
from torchferry.values.dtype import element_type

DTYPES = [
    torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.float8_e4m3fn,
    torch.float8_e4m3fnuz, torch.float8_e5m2, torch.float8_e5m2fnuz, torch.int64, torch.int32,
    torch.int16, torch.int8, torch.uint8, torch.uint16, torch.uint32, torch.uint64, torch.bool,
]  # fmt: skip


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shape", [(2, 3), (1,), (), (0, 3), (3, 0)], ids=str)
def test_dtype_shape_and_bits_are_kept(dtype, shape):
    want = (torch.rand(shape) * 3).to(dtype)
    value = onnxruntime.OrtValue.ortvalue_from_shape_and_type(list(shape), element_type(dtype))
    bits = {1: torch.uint8, 2: torch.int16}.get(dtype.itemsize)
    value.update_inplace((want.view(bits) if bits else want).numpy())
    got = to_tensor(value)
    assert (got.dtype, got.shape) == (dtype, want.shape)
    assert got.double().tolist() == want.double().tolist()


def test_the_memory_is_its_own():
    value = onnxruntime.OrtValue.ortvalue_from_shape_and_type([2], element_type(torch.bool))
    value.update_inplace(np.array([True, False]))
    tensor = to_tensor(value)
    value.update_inplace(np.array([False, False]))
    del value
    assert tensor.tolist() == [True, False]
    assert (~tensor).tolist() == [False, True]


def test_text_is_no_tensor():
    text = '<ir_version: 10, opset_import: ["" : 20]>'
    text += 'g () => (string[1] y) { y = Constant<value_strings=["a"]>() }'
    proto = onnx.parser.parse_model(text).SerializeToString()
    session = onnxruntime.InferenceSession(proto, providers=["CPUExecutionProvider"])
    (value,) = session.run_with_ort_values(["y"], {})
    assert to_tensor(value) is None
