import numpy as np
import onnx
import onnxruntime
import pytest
import torch

from torchferry.errors import UsageError
from torchferry.seams import ort
from torchferry.seams.pytorch import from_dlpack


def test_the_memory_of_a_value():
    value = onnxruntime.OrtValue.ortvalue_from_numpy(np.arange(3, dtype=np.float32))
    assert from_dlpack(ort.c_value(value).to_dlpack()).tolist() == [0, 1, 2]


NAMES = {torch.float32: "float"}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bool, torch.int8, torch.float16])
def test_a_value_in_the_memory_of_a_tensor(dtype):
    tensor = (torch.arange(6) > 2).to(dtype).reshape(2, 3)
    value = onnxruntime.OrtValue(ort.sharer()(tensor))
    assert value.data_ptr() == tensor.data_ptr()
    assert value.data_type() == f"tensor({NAMES.get(dtype, str(dtype).removeprefix('torch.'))})"
    assert value.numpy().tolist() == tensor.tolist()


def test_a_session_of_c():
    graph = onnx.parser.parse_model(
        '<ir_version: 10, opset_import: ["" : 18]> g (float[2] x) => (float[2] y) {y = Neg(x)}'
    )
    session = onnxruntime.InferenceSession(graph.SerializeToString())
    value = ort.c_state().OrtValue.from_dlpack(torch.to_dlpack(torch.ones(2)))
    (found,) = ort.c_session(session).run_with_ort_values({"x": value}, ["y"], None)
    assert found.numpy().tolist() == [-1, -1]


def test_another_onnxruntime_is_told_in_a_sentence():
    with pytest.raises(UsageError, match=r"OrtValue\._ortvalue, which torchferry needs for"):
        ort.c_value(object())
    with pytest.raises(UsageError, match=r"InferenceSession\._sess, .* torch\.compile backend"):
        ort.c_session(object())


def test_its_errors_are_named():
    assert RuntimeError in ort.ort_errors()
    with pytest.raises(ort.ort_errors()[1:]):
        onnxruntime.InferenceSession(b"no model")
