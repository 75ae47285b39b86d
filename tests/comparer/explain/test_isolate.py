from __future__ import annotations

import onnx_ir as ir
import onnxruntime
import pytest
import torch

from torchferry.comparer import compare
from torchferry.converter import convert
from torchferry.dumper import read_dump
from torchferry.errors import UsageError
from torchferry.values.difference import max_diff


def test_the_piece_shows_the_difference_alone(small, tmp_path):
    node = small.spoil(small.node("Gemm", 1), 1)
    path = tmp_path / "first.onnx"
    found = compare(small.program, small.onnx, cut=path)
    assert found.cut == path
    assert found.suspects == (node,)
    session = onnxruntime.InferenceSession(path)
    dump = read_dump(tmp_path / "first.inputs.safetensors")
    assert (
        list(dump["inputs"]) == [value.name for value in session.get_inputs()] == ["layer_norm_1"]
    )
    got = session.run(None, {k: t.numpy() for k, t in dump["inputs"].items()})[0]
    diff = max_diff(dump["expected"]["linear_1"], torch.from_numpy(got))
    assert diff.abs == pytest.approx(found.first.local.abs, rel=1e-4)
    assert diff.abs > 1e-3


def test_the_name_of_the_file_must_end_in_onnx(small, tmp_path):
    small.spoil(small.node("Gemm"), 1)
    with pytest.raises(UsageError, match="give a file name that ends in"):
        compare(small.program, small.onnx, cut=tmp_path / "first.pb")


def test_nothing_is_written_when_all_agrees(small, tmp_path):
    found = compare(small.program, small.onnx, cut=tmp_path / "first.onnx")
    assert found.cut is None
    assert list(tmp_path.iterdir()) == []


def test_small_differences_that_grow_are_told_apart():
    class Steep(torch.nn.Module):
        def forward(self, x):
            return torch.tan(x * 1.0000001)

    x = torch.full((4,), 1.5707)
    program = torch.export.export(Steep(), (x,))
    model = convert(program)
    mul = next(node for node in model.graph if node.op_type == "Mul")
    changed = ir.Value(name="c", const_value=ir.tensor(torch.tensor(1.000004).numpy()))
    model.graph.register_initializer(changed)
    mul.replace_input_with(1, changed)
    found = compare(program, model)
    assert found.first.op_type == "Tan"
    assert any("it agrees: small differences before it grew here" in note for note in found.notes)


def test_where_it_cannot_be_cut_to_is_said_before_anything_runs(small, tmp_path):
    (tmp_path / "taken.onnx").mkdir()
    for name, says in (("x.pb", "ends in .onnx"), ("no/x.onnx", "no folder"), ("taken.onnx", "")):
        with pytest.raises(UsageError, match=f"cannot .*{says}"):
            compare(small.program, small.onnx, cut=tmp_path / name)


class Outlier(torch.nn.Module):
    """One channel of its first layer is a thousand times the others, and is scaled back."""

    def __init__(self):
        super().__init__()
        self.first, self.last = torch.nn.Linear(8, 8), torch.nn.Linear(8, 4)
        self.scale = torch.nn.Parameter(torch.ones(8))
        with torch.no_grad():
            self.first.weight[0] *= 1e3
            self.scale[0] = 1e-3

    def forward(self, x):
        return self.last(torch.tanh(self.first(x) * self.scale))


@pytest.mark.parametrize("feed", ["own", "torch"])
@pytest.mark.parametrize("shape", [(30, 8), (2, 15, 8)])
def test_a_wrong_channel_that_a_larger_one_hides_is_found(feed, shape):
    torch.manual_seed(0)
    x = torch.randn(shape)
    program = torch.export.export(Outlier(), (x,))
    model = convert(program)
    assert compare(program, model, feed=feed).ok
    kind = "Gemm" if len(shape) == 2 else "MatMul"
    node = next(node for node in model.graph if node.op_type == kind)
    weight = node.inputs[1].const_value.numpy().copy()
    (weight.T if kind == "MatMul" else weight)[3] *= 1.02
    node.inputs[1].const_value = ir.tensor(weight)
    found = compare(program, model, feed=feed)
    assert found.first.origin == "linear"
    assert found.suspects[0] == node.name
    assert found.first.local.scale < 10
    assert found.first.local.argm[-1] == 3
    assert found.first in found.rows
    assert any("one channel of it is wrong" in note for note in found.notes)
