from __future__ import annotations

import errno
import os
from pathlib import Path

import numpy as np
import onnx_ir as ir
import onnxruntime
import pytest
import torch
from onnx_ir.tensor_adapters import TorchTensor
from safetensors.torch import save_file

from torchferry.errors import UsageError
from torchferry.graph import io, reference
from torchferry.graph.reference import References, Region, check_linkable, is_unbound, withheld
from torchferry.sources.mapped import MappedFile, map_file

NAME = "model.safetensors"


@pytest.fixture
def mapped(tmp_path: Path) -> MappedFile:
    folder = tmp_path / "checkpoint"
    folder.mkdir()
    generator = torch.Generator().manual_seed(0)
    tensors = {
        "a": torch.randn(40, 50, generator=generator),
        "b": torch.randn(30, 20, generator=generator).to(torch.bfloat16),
        "bits": torch.arange(1001, dtype=torch.uint8),  # leaves what follows at an odd byte
        "small": torch.arange(3.0),
    }
    save_file(tensors, folder / NAME)
    return map_file(folder / NAME)


def region(file: MappedFile) -> Region:
    return Region(file.path, file.address, file.size)


def model_of(*tensors: torch.Tensor) -> ir.Model:
    """A model that returns each of the given weights through an Identity."""
    weights, nodes = [], []
    for number, given in enumerate(tensors):
        tensor = TorchTensor(given)
        kind = ir.TensorType(tensor.dtype)
        shape = ir.Shape(given.shape)
        weights.append(ir.Value(name=f"w{number}", shape=shape, type=kind, const_value=tensor))
        node = ir.node("Identity", [weights[-1]])
        node.outputs[0].name = f"y{number}"
        node.outputs[0].shape, node.outputs[0].type = shape, kind
        nodes.append(node)
    outputs = [node.outputs[0] for node in nodes]
    graph = ir.Graph([], outputs, nodes=nodes, initializers=weights, opset_imports={"": 20})
    return ir.Model(graph, ir_version=10)


def out_of(tmp_path: Path) -> Path:
    folder = tmp_path / "out"
    folder.mkdir()
    return folder / "model.onnx"


def test_a_mapped_weight_is_not_copied(mapped: MappedFile, tmp_path: Path) -> None:
    path = out_of(tmp_path)
    io.save(model_of(mapped.tensors["a"], torch.ones(500)), path, regions=[region(mapped)])
    assert (path.parent / NAME).samefile(mapped.path)
    assert path.with_name("model.onnx_data").stat().st_size == 2000
    found = io.load(path).graph.initializers["w0"].const_value
    assert isinstance(found, ir.ExternalTensor)
    assert (Path(found.location).name, found.length) == (NAME, 8000)
    assert np.array_equal(found.numpy(), mapped.tensors["a"].numpy())
    first, second = onnxruntime.InferenceSession(path).run(None, {})
    assert np.array_equal(first, mapped.tensors["a"].numpy())
    assert second.tolist() == [1.0] * 500


def test_small_and_transposed_weights_are_written(mapped: MappedFile, tmp_path: Path) -> None:
    path = out_of(tmp_path)
    io.save(
        model_of(mapped.tensors["small"], mapped.tensors["a"].t()), path, regions=[region(mapped)]
    )
    assert sorted(p.name for p in path.parent.iterdir()) == ["model.onnx", "model.onnx_data"]
    second = onnxruntime.InferenceSession(path).run(["y1"], {})[0]
    assert np.array_equal(second, mapped.tensors["a"].t().numpy())


def test_a_part_of_a_weight_is_a_place_too_and_what_ends_behind_the_file_is_none(
    mapped: MappedFile,
) -> None:
    rows = TorchTensor(mapped.tensors["a"][3:5])
    whole = TorchTensor(mapped.tensors["a"])
    references = References([region(mapped)])
    found, start = references.place(rows), references.place(whole)
    assert found is not None
    assert start is not None
    assert found[1] - start[1] == 3 * 50 * 4
    short = References([Region(mapped.path, mapped.address, start[1] + 7999)])
    assert short.place(whole) is None
    assert not short.used
    assert references.place(TorchTensor(mapped.tensors["a"].clone())) is None


def test_a_model_in_the_checkpoints_folder_needs_no_link(mapped: MappedFile) -> None:
    path = mapped.path.with_name("model.onnx")
    io.save(model_of(mapped.tensors["a"]), path, regions=[region(mapped)])
    assert mapped.path.stat().st_nlink == 1
    assert np.array_equal(
        onnxruntime.InferenceSession(path).run(None, {})[0], mapped.tensors["a"].numpy()
    )


def test_a_checkpoint_of_symbolic_links_is_followed(mapped: MappedFile, tmp_path: Path) -> None:
    link = tmp_path / "snapshot.safetensors"
    link.symlink_to(mapped.path)
    path = out_of(tmp_path)
    moved = Region(link, mapped.address, mapped.size)
    io.save(model_of(mapped.tensors["a"]), path, regions=[moved])
    assert not (path.parent / link.name).is_symlink()
    assert len(onnxruntime.InferenceSession(path).run(None, {})[0]) == 40


def test_another_file_of_that_name_is_not_replaced(mapped: MappedFile, tmp_path: Path) -> None:
    path = out_of(tmp_path)
    (path.parent / NAME).write_text("mine")
    with pytest.raises(UsageError, match="is another file than"):
        io.save(model_of(mapped.tensors["a"]), path, regions=[region(mapped)])
    assert [p.name for p in path.parent.iterdir()] == [NAME]


def test_what_fails_later_leaves_no_link(
    mapped: MappedFile, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = out_of(tmp_path)
    full = OSError(errno.ENOSPC, "No space left on device")

    def fails(self: Path, data: bytes) -> int:
        raise full

    monkeypatch.setattr(Path, "write_bytes", fails)
    with pytest.raises(UsageError, match="No space left"):
        io.save(model_of(mapped.tensors["a"]), path, regions=[region(mapped)])
    assert not list(path.parent.iterdir())
    assert mapped.path.stat().st_nlink == 1


@pytest.mark.parametrize(
    ("number", "reason"),
    [(errno.EXDEV, "another file system"), (errno.EPERM, "hard links"), (errno.EIO, "I/O|Input")],
)
def test_where_no_link_can_be_made_that_is_said(
    mapped: MappedFile,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    number: int,
    reason: str,
) -> None:
    def refuses(source: Path, target: Path) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(reference.os, "link", refuses)
    with pytest.raises(UsageError, match=rf"cannot have a second name.*({reason}).*weights copy"):
        check_linkable(mapped.path, tmp_path)


def test_a_trial_leaves_nothing(mapped: MappedFile, tmp_path: Path) -> None:
    before = sorted(tmp_path.iterdir())
    check_linkable(mapped.path, tmp_path)
    assert sorted(tmp_path.iterdir()) == before
    assert mapped.path.stat().st_nlink == 1


def test_weights_without_data_are_refused_by_name(tmp_path: Path) -> None:
    names = [torch.empty(500, device="meta") for _ in range(5)]
    model = model_of(torch.ones(2), *names)
    assert [is_unbound(v.const_value) for v in model.graph.initializers.values()] == [
        False, *[True] * 5,
    ]  # fmt: skip
    with pytest.raises(UsageError, match=r"has none for w1, w2, w3 and 2 more: bind its weights"):
        io.save(model, tmp_path / "model.onnx")
    assert not list(tmp_path.iterdir())


def test_withheld_weights_come_back(mapped: MappedFile) -> None:
    model = model_of(mapped.tensors["a"], mapped.tensors["small"], torch.ones(500))
    values = model.graph.initializers
    before = [value.const_value for value in values.values()]

    def fails() -> None:
        with withheld(model, [region(mapped)]):
            assert [value.const_value is None for value in values.values()] == [True, False, False]
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fails()
    assert [value.const_value for value in values.values()] == before
    with withheld(model, []):
        assert all(value.const_value is not None for value in values.values())
