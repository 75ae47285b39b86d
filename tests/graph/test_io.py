from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime
import pytest
import torch
from onnx_ir.tensor_adapters import TorchTensor

from torchferry.errors import UsageError
from torchferry.graph import io


def model_of(*tensors: Any, opset: int = 20) -> ir.Model:
    """A model that returns each of the given weights through an Identity."""
    weights, outputs, nodes = [], [], []
    for number, given in enumerate(tensors):
        tensor = TorchTensor(given) if isinstance(given, torch.Tensor) else given
        tensor = ir.tensor(tensor) if isinstance(tensor, np.ndarray) else tensor
        weight = ir.Value(
            name=f"w{number}",
            shape=ir.Shape(tensor.shape.numpy()),
            type=ir.TensorType(tensor.dtype),
            const_value=tensor,
        )
        node = ir.node("Identity", [weight])
        node.outputs[0].name = f"y{number}"
        node.outputs[0].shape, node.outputs[0].type = weight.shape, weight.type
        weights.append(weight)
        nodes.append(node)
        outputs.append(node.outputs[0])
    graph = ir.Graph(
        [], outputs, nodes=nodes, initializers=weights, opset_imports={"": opset}, name="weights"
    )
    return ir.Model(graph, ir_version=10)


def stored(model: ir.Model, name: str) -> ir.TensorProtocol:
    tensor = model.graph.initializers[name].const_value
    assert tensor is not None
    return tensor


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "model.onnx"


def test_onnxruntime_reads_what_was_saved(path: Path) -> None:
    weights = [torch.randn(40, 50), torch.randn(40, 50).t(), torch.arange(4), torch.tensor(2.5)]
    io.save(model_of(*weights), path)
    assert sorted(p.name for p in path.parent.iterdir()) == ["model.onnx", "model.onnx_data"]
    results = onnxruntime.InferenceSession(path).run(None, {})
    for weight, result in zip(weights, results, strict=True):
        assert np.array_equal(weight.numpy(), result)


def test_small_tensors_stay_in_the_model_and_need_no_other_file(path: Path) -> None:
    io.save(model_of(torch.arange(128), np.zeros((0, 7), np.float32)), path)
    assert [p.name for p in path.parent.iterdir()] == ["model.onnx"]
    loaded = io.load(path)
    assert np.array_equal(stored(loaded, "w0").numpy(), np.arange(128))
    assert stored(loaded, "w1").numpy().shape == (0, 7)


def test_more_than_a_kibibyte_goes_beside_the_model(path: Path) -> None:
    io.save(model_of(torch.arange(128), torch.arange(129)), path)
    loaded = io.load(path)
    assert not isinstance(stored(loaded, "w0"), ir.ExternalTensor)
    assert isinstance(stored(loaded, "w1"), ir.ExternalTensor)


@pytest.mark.parametrize(
    "array",
    [
        np.random.default_rng(0).normal(size=(33, 50)).astype(ml_dtypes.bfloat16),
        np.random.default_rng(0).normal(size=(33, 50)).astype(np.float16),
        np.random.default_rng(0).normal(size=(33, 50)).astype(ml_dtypes.float8_e4m3fn),
        np.random.default_rng(0).normal(size=(33, 50)).astype(ml_dtypes.float8_e5m2),
        np.random.default_rng(0).integers(-8, 8, (61, 41)).astype(ml_dtypes.int4),
        np.random.default_rng(0).integers(0, 16, (61, 41)).astype(ml_dtypes.uint4),
        np.random.default_rng(0).integers(0, 2, (61, 41)).astype(np.bool_),
        np.array([np.nan, np.inf, -np.inf, -0.0] * 100),
    ],
    ids=lambda array: str(array.dtype),
)
def test_every_type_comes_back(path: Path, array: np.ndarray) -> None:
    io.save(model_of(array), path)
    tensor = stored(io.load(path), "w0")
    assert isinstance(tensor, ir.ExternalTensor)
    assert tensor.numpy().dtype == array.dtype
    assert tensor.tobytes() == ir.tensor(array).tobytes()
    assert tensor.shape.numpy() == array.shape


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float8_e4m3fn, torch.bool])
def test_torch_tensors_of_every_kind_come_back(path: Path, dtype: torch.dtype) -> None:
    weight = torch.randn(40, 50).to(dtype)
    io.save(model_of(weight, weight.t()), path)
    loaded = io.load(path)
    bits = weight.view(torch.uint8).numpy()
    assert stored(loaded, "w0").tobytes() == bits.tobytes()
    assert stored(loaded, "w1").tobytes() == (
        weight.t().contiguous().view(torch.uint8).numpy().tobytes()
    )


def test_strings_stay_in_the_model(path: Path) -> None:
    strings = ir.StringTensor([b"a" * 5000, b"b"], shape=ir.Shape([2]))
    io.save(model_of(strings), path)
    assert [p.name for p in path.parent.iterdir()] == ["model.onnx"]
    assert list(stored(io.load(path), "w0").numpy()) == [b"a" * 5000, b"b"]


def test_lazy_tensors_are_made_when_they_are_written(path: Path) -> None:
    array = np.random.default_rng(0).normal(size=(30, 40)).T
    lazy = ir.LazyTensor(
        lambda: ir.tensor(array), dtype=ir.DataType.DOUBLE, shape=ir.Shape([40, 30])
    )
    io.save(model_of(lazy), path)
    assert np.array_equal(stored(io.load(path), "w0").numpy(), array)


def test_shared_memory_is_written_once(path: Path) -> None:
    weight, array = torch.randn(100, 100), np.random.default_rng(0).normal(size=(100, 100))
    tensor = TorchTensor(weight)
    shared = [weight, weight.view(50, 200), tensor, tensor, array, array.reshape(-1)]
    io.save(model_of(*shared), path)
    assert path.with_name("model.onnx_data").stat().st_size == 40_000 + 80_000
    loaded = io.load(path)
    for number, given in enumerate((weight, weight.view(50, 200), weight, weight)):
        assert np.array_equal(stored(loaded, f"w{number}").numpy(), given.numpy())
    assert np.array_equal(stored(loaded, "w5").numpy(), array.reshape(-1))


def test_shared_weights_of_a_file_stay_shared(path: Path) -> None:
    weight = torch.randn(1000)
    io.save(model_of(weight, weight), path)
    for target in (path, path.with_name("other.onnx")):
        io.save(io.load(path), target)
        assert target.with_name(f"{target.name}_data").stat().st_size == 4000
        assert np.array_equal(stored(io.load(target), "w1").numpy(), weight.numpy())


def test_views_that_differ_are_not_taken_for_shared(path: Path) -> None:
    weight = torch.randn(100, 100)
    views = [
        weight,
        weight.t(),
        weight[:50],
        weight.view(torch.int32),
        weight[::2],
        weight[:, :50],
    ]
    io.save(model_of(*views), path)
    loaded = io.load(path)
    for number, view in enumerate(views):
        assert np.array_equal(stored(loaded, f"w{number}").numpy(), view.numpy())


def test_offsets_are_aligned(path: Path) -> None:
    io.save(model_of(torch.zeros(257, dtype=torch.uint8).repeat(5), torch.randn(2**18 + 1)), path)
    loaded = io.load(path)
    small, large = stored(loaded, "w0"), stored(loaded, "w1")
    assert (small.offset, large.offset) == (0, 4096)
    io.save(model_of(torch.randn(300), torch.randn(301), torch.randn(302)), path)
    loaded = io.load(path)
    assert all(stored(loaded, f"w{number}").offset % 64 == 0 for number in range(3))


def test_the_model_in_memory_is_not_changed(path: Path) -> None:
    model = model_of(torch.randn(40, 50), torch.arange(3))
    before = [value.const_value for value in model.graph.initializers.values()]
    text = ir.to_proto(model).SerializeToString()
    io.save(model, path)
    after = [value.const_value for value in model.graph.initializers.values()]
    assert all(a is b for a, b in zip(before, after, strict=True))
    assert ir.to_proto(model).SerializeToString() == text


def test_weights_of_subgraphs_go_beside_the_model_too(path: Path) -> None:
    branches = []
    for sign in (1, -1):
        weight = sign * torch.ones(1000)
        branch = model_of(weight).graph
        branch.initializers["w0"].name = f"branch{sign}"
        branches.append(branch)
    condition = ir.Value(name="c", shape=ir.Shape([]), type=ir.TensorType(ir.DataType.BOOL))
    node = ir.Node(
        "", "If", [condition],
        [ir.AttrGraph("then_branch", branches[0]), ir.AttrGraph("else_branch", branches[1])],
    )  # fmt: skip
    node.outputs[0].name = "y"
    node.outputs[0].shape, node.outputs[0].type = (
        ir.Shape([1000]),
        ir.TensorType(ir.DataType.FLOAT),
    )
    graph = ir.Graph(
        [condition], node.outputs, nodes=[node], opset_imports={"": 20}, name="branches"
    )
    io.save(ir.Model(graph, ir_version=10), path)
    assert path.with_name("model.onnx_data").stat().st_size >= 8000
    assert path.stat().st_size < 2000
    session = onnxruntime.InferenceSession(path)
    assert session.run(None, {"c": np.array(False)})[0].tolist() == [-1.0] * 1000


def test_a_loaded_model_can_be_saved_over_itself_and_elsewhere(path: Path) -> None:
    first, second = torch.randn(500), torch.randn(600)
    io.save(model_of(first, second, torch.arange(5)), path)
    loaded = io.load(path)
    loaded.graph.outputs.pop(0)
    loaded.graph.remove(loaded.graph[0], safe=True)  # what is left moves to the front of the file
    loaded.graph.initializers.pop("w0")
    io.save(loaded, path)
    assert np.array_equal(stored(io.load(path), "w1").numpy(), second.numpy())
    assert np.array_equal(stored(loaded, "w1").numpy(), second.numpy())
    elsewhere = path.parent / "elsewhere"
    elsewhere.mkdir()
    io.save(loaded, elsewhere / "other.onnx")
    assert sorted(p.name for p in elsewhere.iterdir()) == ["other.onnx", "other.onnx_data"]
    result = onnxruntime.InferenceSession(elsewhere / "other.onnx").run(["y1"], {})
    assert np.array_equal(result[0], second.numpy())


def test_small_external_tensors_of_other_tools_are_taken_in(path: Path) -> None:
    ir.save(model_of(torch.arange(50)), path, external_data="foreign.bin", size_threshold_bytes=0)
    loaded = io.load(path)
    (path.parent / "foreign.bin").unlink()
    (path.parent / "new").mkdir()
    io.save(loaded, path.parent / "new" / "model.onnx")
    assert [p.name for p in (path.parent / "new").iterdir()] == ["model.onnx"]
    result = onnxruntime.InferenceSession(path.parent / "new" / "model.onnx").run(None, {})
    assert result[0].tolist() == list(range(50))


def test_external_tensors_in_attributes_are_taken_in(path: Path) -> None:
    tensor = onnx.numpy_helper.from_array(np.arange(400, dtype=np.float32), "c")
    node = onnx.helper.make_node("Constant", [], ["y"], name="constant", value=tensor)
    output = onnx.helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, [400])
    graph = onnx.helper.make_graph([node], "g", [], [output])
    opsets = [onnx.helper.make_opsetid("", 20)]  # every onnxruntime reads it
    model = onnx.helper.make_model(graph, opset_imports=opsets, ir_version=10)
    onnx.save(model, path, save_as_external_data=True, location="foreign.bin", size_threshold=0,
              convert_attribute=True)  # fmt: skip
    loaded = io.load(path)
    data = path.parent / "foreign.bin"
    data.write_bytes(data.read_bytes()[:100])
    with pytest.raises(UsageError, match="attribute value of constant ends at byte 1600"):
        io.load(path)
    data.unlink()
    (path.parent / "new").mkdir()
    io.save(loaded, path.parent / "new" / "model.onnx")
    result = onnxruntime.InferenceSession(path.parent / "new" / "model.onnx").run(None, {})
    assert result[0].tolist() == list(range(400))


def test_loading_reads_no_weights(path: Path) -> None:
    io.save(model_of(torch.randn(1000)), path)
    tensor = stored(io.load(path), "w0")
    assert isinstance(tensor, ir.ExternalTensor)
    assert tensor.raw is None


def test_an_interrupted_write_leaves_the_earlier_files(path: Path) -> None:
    io.save(model_of(torch.zeros(1000)), path)

    def interrupt() -> Any:
        raise KeyboardInterrupt

    broken = ir.LazyTensor(interrupt, dtype=ir.DataType.FLOAT, shape=ir.Shape([2000]))
    with pytest.raises(KeyboardInterrupt):
        io.save(model_of(torch.ones(1000), broken), path)
    assert sorted(p.name for p in path.parent.iterdir()) == ["model.onnx", "model.onnx_data"]
    assert not stored(io.load(path), "w0").numpy().any()


def test_a_folder_that_cannot_be_written_is_said(path: Path) -> None:
    with pytest.raises(UsageError, match=r"cannot write .*: No such file or directory"):
        io.save(model_of(torch.zeros(1000)), path.parent / "absent" / "model.onnx")
    with pytest.raises(UsageError, match=r"cannot write .*: No such file or directory"):
        io.save(model_of(torch.zeros(10)), path.parent / "absent" / "model.onnx")


@pytest.mark.parametrize(
    "content", [b"", b"hello, this is no model\n", b"\x00" * 100, b"\x08\x0a"]
)
def test_a_foreign_file_is_refused(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    with pytest.raises(UsageError, match="is no ONNX model, or it is cut short"):
        io.load(path)


def test_a_missing_file_is_named(path: Path) -> None:
    with pytest.raises(UsageError, match=r"there is no file .*model\.onnx"):
        io.load(path)


def test_a_model_that_is_cut_short_is_refused_wherever_it_is_cut(path: Path) -> None:
    io.save(model_of(torch.arange(100)), path)
    content = path.read_bytes()
    for end in range(0, len(content), 7):
        path.write_bytes(content[:end])
        with pytest.raises(UsageError, match="is no ONNX model, or it is cut short"):
            io.load(path)


def test_weights_that_are_missing_or_cut_short_are_refused(path: Path) -> None:
    io.save(model_of(torch.randn(1000)), path)
    data = path.with_name("model.onnx_data")
    data.write_bytes(data.read_bytes()[:-1])
    with pytest.raises(UsageError, match=r"cut short.*has 3999 bytes, and w0 ends at byte 4000"):
        io.load(path)
    data.unlink()
    with pytest.raises(UsageError, match=r"keeps its weights in model\.onnx_data, which is not"):
        io.load(path)


def test_a_length_that_does_not_fit_the_shape_is_refused(path: Path) -> None:
    io.save(model_of(torch.randn(1000)), path)
    proto = onnx.load(path, load_external_data=False)
    proto.graph.initializer[0].dims[0] = 2000
    path.write_bytes(proto.SerializeToString())
    with pytest.raises(UsageError, match="cut short or of another model"):
        io.load(path)


def test_a_sparse_weight_is_refused_by_name(path: Path) -> None:
    node = onnx.helper.make_node("Add", ["x", "w"], ["y"])
    x, y = (onnx.helper.make_tensor_value_info(n, onnx.TensorProto.FLOAT, [4]) for n in "xy")
    values = onnx.helper.make_tensor("w", onnx.TensorProto.FLOAT, [1], [2.0])
    places = onnx.helper.make_tensor("places", onnx.TensorProto.INT64, [1], [3])
    graph = onnx.helper.make_graph([node], "g", [x], [y])
    graph.sparse_initializer.append(onnx.helper.make_sparse_tensor(values, places, [4]))
    onnx.save(onnx.helper.make_model(graph), path)
    with pytest.raises(UsageError, match=r"reads w, which nothing makes.*sparse"):
        io.load(path)


def test_saving_and_loading_need_no_torch(path: Path) -> None:
    code = """
import sys
from pathlib import Path
import numpy as np
import onnx_ir as ir
from torchferry.graph import io
weight = ir.Value(name="w", const_value=ir.tensor(np.zeros(1000)))
graph = ir.Graph([], [], nodes=[], initializers=[weight], opset_imports={"": 20}, name="g")
io.save(ir.Model(graph, ir_version=10), Path(sys.argv[1]))
io.load(Path(sys.argv[1]))
print("torch" in sys.modules)
"""
    command = [sys.executable, "-c", code, str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.stdout.strip() == "False", done.stderr
