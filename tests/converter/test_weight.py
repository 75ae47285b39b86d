import onnx_ir as ir
import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from torchferry.converter.weight import Weight, weight_value

DTYPES = [
    torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.float8_e4m3fn,
    torch.float8_e5m2, torch.int8, torch.uint8, torch.int64, torch.bool,
]  # fmt: skip


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_weight_is_a_view(dtype):
    tensor = torch.ones(2, 3).to(dtype)
    value = weight_value(tensor, "w")
    assert value.const_value.raw.data_ptr() == tensor.data_ptr()
    assert value.const_value.tobytes() == tensor.contiguous().view(torch.uint8).numpy().tobytes()
    assert (value.dtype, tuple(value.shape)) == (value.const_value.dtype, (2, 3))


def test_complex_numbers_are_pairs():
    value = weight_value(torch.tensor([1 + 2j, 3 - 4j]).conj(), "w")
    assert value.dtype == ir.DataType.FLOAT
    assert value.const_value.numpy().tolist() == [[1, -2], [3, 4]]
    assert value.meta["complex"]


def test_a_parameter_is_detached():
    value = weight_value(torch.nn.Parameter(torch.ones(2)), "w", shared=True)
    assert isinstance(value.const_value, Weight)
    assert value.const_value.shared
    assert not value.const_value.raw.requires_grad


@pytest.mark.parametrize("fake", [True, False])
def test_a_tensor_without_data_is_kept_as_it_lies(fake):
    if fake:
        with FakeTensorMode():
            tensor = torch.empty(3, 2, dtype=torch.bfloat16).t()
    else:
        tensor = torch.empty(3, 2, dtype=torch.bfloat16, device="meta").t()
    value = weight_value(tensor, "w")
    raw = value.const_value.raw
    assert (raw.device.type, type(raw), raw.stride()) == ("meta", torch.Tensor, (1, 2))
    assert value.const_value.shared
    assert (value.dtype, tuple(value.shape)) == (ir.DataType.BFLOAT16, (2, 3))
