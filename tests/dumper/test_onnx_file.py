import numpy as np
import onnx
import onnxruntime
import pytest
import torch

from torchferry.dumper.onnx_file import open_onnx
from torchferry.dumper.store import (
    create_input_tensors_from_onnx_model,
    create_onnx_model_from_input_tensors,
    open_dump,
)
from torchferry.errors import UsageError
from torchferry.graph.outline import read_proto


def run(model):
    """The outputs by name, as onnxruntime computes them."""
    given = model.SerializeToString() if isinstance(model, onnx.ModelProto) else str(model)
    session = onnxruntime.InferenceSession(given, providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    return dict(zip(names, session.run(None, {}), strict=True))


def test_onnxruntime_gives_the_tensors(tmp_path):
    large, small = torch.rand(20, 30), torch.arange(3).to(torch.uint16)
    with open_dump(tmp_path / "x.onnx") as dump:
        dump.add(("model", 0, "I"), ((large,), {"mask": small}))
        dump.add(("model", 0, "O"), large.to(torch.float16).T)
    found = run(tmp_path / "x.onnx")
    assert list(found) == ["model.0.I.0.0", "model.0.I.1.mask", "model.0.O"]
    assert np.array_equal(found["model.0.I.0.0"], large)
    assert np.array_equal(found["model.0.I.1.mask"], small)
    assert np.array_equal(found["model.0.O"], large.to(torch.float16).T)
    onnx.checker.check_model(tmp_path / "x.onnx", full_check=True)


def test_shared_memory_in_every_layout():
    x = torch.arange(24.0).reshape(2, 3, 4)
    views = [x, x.permute(2, 0, 1), x[1, ::2, 1:], x[1, 2, 3], x[:, None].expand(2, 5, 3, 4)]
    array = np.arange(6)
    found = run(create_onnx_model_from_input_tensors([views, array, array[::-2]]))
    for number, view in enumerate(views):
        assert np.array_equal(found[f"0.{number}"], view)
    assert np.array_equal(found["2"], array[::-2])


def test_shared_memory_of_several_types_is_given_as_bytes():
    x = torch.arange(4, dtype=torch.int32)
    found = run(create_onnx_model_from_input_tensors([x, x.view(torch.int16)]))
    assert found["0"].shape == (4, 4)
    assert found["0"].view(np.int32).reshape(-1).tolist() == [0, 1, 2, 3]
    assert found["1"].shape == (8, 2)
    z = torch.tensor([1 + 2j, 3 + 4j])
    assert run(create_onnx_model_from_input_tensors([z, z[1:]]))["1"].tolist() == [[3, 4]]


@pytest.mark.parametrize(
    "dtype",
    [
        *(torch.bfloat16, torch.float8_e4m3fn, torch.float8_e5m2fnuz, torch.float8_e8m0fnu),
        *(torch.complex128, torch.int4, torch.float4_e2m1fn_x2),
    ],
    ids=str,
)
@pytest.mark.parametrize("shared", [False, True])
def test_every_dtype_can_be_loaded(dtype, shared):
    x = torch.empty(4, dtype=dtype)
    model = create_onnx_model_from_input_tensors([x, x[1:]] if shared else [x])
    onnx.checker.check_model(model, full_check=True)
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    assert len(session.run_with_ort_values(None, {})) == len(model.graph.output)


def test_without_tensors(tmp_path):
    model = create_onnx_model_from_input_tensors({"n": 3}, tmp_path / "x.onnx")
    assert not model.graph.output
    assert not (tmp_path / "x.onnx_data").exists()


def test_more_than_one_message_holds():
    # 2.5 GiB of zeros that no one touches
    x = torch.empty(5 * 2**27, dtype=torch.float32, device="cpu")
    with pytest.raises(UsageError, match="2 GiB"):
        create_onnx_model_from_input_tensors(x)


def test_files_that_are_no_models(tmp_path):
    path = tmp_path / "x.onnx"
    for content in (b"", b"no model", b"\x08"):
        path.write_bytes(content)
        with pytest.raises(UsageError, match="no ONNX model"):
            read_proto(path)
    with pytest.raises(UsageError, match="no file"):
        read_proto(tmp_path / "y.onnx")


def test_buffers_by_name():
    source = open_onnx(create_onnx_model_from_input_tensors({"x": torch.ones(2)}), None)
    assert source.fetch("x.data", 8).numel() == 8
    with pytest.raises(UsageError, match="has 8 bytes"):
        source.fetch("x.data", 2**60)
    with pytest.raises(UsageError, match="holds no 'y'"):
        source.fetch("y", 8)


def test_a_smaller_model_takes_the_data_of_the_old_one_away(tmp_path):
    path, data = tmp_path / "x.onnx", tmp_path / "x.onnx_data"
    data.write_bytes(b"of someone else")
    create_onnx_model_from_input_tensors(torch.ones(2), path)
    assert data.exists()
    create_onnx_model_from_input_tensors(torch.ones(2000), path)
    assert data.stat().st_size == 8000
    create_onnx_model_from_input_tensors(torch.ones(2), path)
    assert not data.exists()
    assert create_input_tensors_from_onnx_model(path).tolist() == [1, 1]
