from __future__ import annotations

from io import StringIO
from pathlib import Path

import onnx_ir as ir
import pytest
import torch
from onnx_ir.tensor_adapters import TorchTensor
from rich.console import Console
from safetensors.torch import save_file

from torchferry.exporter.tell.weights import with_weights
from torchferry.graph import io
from torchferry.graph.reference import Region
from torchferry.report.model import Report, Section
from torchferry.report.text import render
from torchferry.sources.mapped import map_file


def to_text(report: Report) -> str:
    console = Console(width=200, record=True, file=StringIO())
    render(report, console)
    return console.export_text()


BEFORE = Report("t", ok=True, verdict="v", sections=(Section("A", ()), Section("B", ())))


def saved(tmp_path: Path, *tensors: torch.Tensor) -> Path:
    """A model of mapped weights ``a`` and ``a_again``, and of the given ones."""
    save_file({"a": torch.ones(2000)}, tmp_path / "model.safetensors")
    file = map_file(tmp_path / "model.safetensors")
    mapped = file.tensors["a"]
    values = []
    for name, tensor in {"a": mapped, "a_again": mapped,
                         **{f"w{i}": t for i, t in enumerate(tensors)}}.items():  # fmt: skip
        held = TorchTensor(tensor, name=name)
        values.append(
            ir.Value(name=name, shape=ir.Shape(tensor.shape), const_value=held,
                     type=ir.TensorType(held.dtype))
        )  # fmt: skip
    nodes = [ir.node("Identity", [value]) for value in values]
    graph = ir.Graph([], [node.outputs[0] for node in nodes], nodes=nodes, initializers=values,
                     opset_imports={"": 20})  # fmt: skip
    for number, output in enumerate(graph.outputs):
        output.name = f"y{number}"
    (tmp_path / "out").mkdir()
    path = tmp_path / "out" / "model.onnx"
    io.save(ir.Model(graph, ir_version=10), path, regions=[Region(file.path, file.address,
                                                                   file.size)])  # fmt: skip
    return path


def test_files_and_what_was_copied_are_told(tmp_path: Path) -> None:
    made = with_weights(BEFORE, saved(tmp_path, torch.ones(600), torch.ones(300), torch.ones(3)))
    assert [section.title for section in made.sections] == ["A", "B", "Weights"]
    assert made.data["weights"] == {
        "referred": {"model.safetensors": 8000},
        "copied": {"w0": 2400, "w1": 1200},
    }
    text = to_text(made)
    for part in ("model.safetensors", "referred to", "7.8 KiB", "model.onnx_data", "w0", "w1"):
        assert part in text
    assert (made.ok, made.verdict) == (BEFORE.ok, BEFORE.verdict)


def test_nothing_copied_is_one_table(tmp_path: Path) -> None:
    made = with_weights(BEFORE, saved(tmp_path))
    assert len(made.sections[2].blocks) == 1
    assert made.data["weights"]["copied"] == {}


@pytest.mark.parametrize(("count", "told"), [(20, False), (23, True)])
def test_many_copied_ones_are_counted(tmp_path: Path, count: int, told: bool) -> None:
    path = saved(tmp_path, *[torch.full((300 + n,), 1.0) for n in range(count)])
    text = to_text(with_weights(BEFORE, path))
    assert ("and 3 smaller tensors" in text) == told
    assert ("w0 " in text) != told
