"""Files of a model that was exported inside another, or of a part of it."""

from __future__ import annotations

import io
import warnings

import numpy as np
import onnx
import onnx_ir as ir
import pytest
import torch

from families import in_turn
from torchferry.comparer import compare
from torchferry.comparer.align.scopes import Move, move_between
from torchferry.converter import convert
from torchferry.converter.torch_onnx import export_program
from torchferry.observer import steal_forward


@pytest.mark.parametrize(
    ("paths", "known", "expected"),
    [
        ([], [], Move()),
        (["a", "a.b"], ["a", "a.b", "c"], Move()),
        (["m", "m.a", "m.a.b", "m.c"], ["a", "a.b", "c"], Move("m")),
        (["x.m", "x.m.a", "x.m.c.0", "x"], ["", "a", "c", "c.0"], Move("x.m")),
        (["a", "a.0", "b"], ["m", "m.a", "m.a.0", "m.b"], Move("", "m")),
        (["m.a", "m.a.0", "m.b"], ["n.a", "n.a.0", "n.b"], Move("m", "n")),
        (["p", "q.r"], ["a", "b.c"], Move()),
    ],
)
def test_the_most_paths_are_known_after_the_move(paths, known, expected):
    assert move_between(paths, known) == expected


def test_what_stands_outside_is_nowhere():
    move = Move("m", "n.o")
    assert [move(path) for path in ("m", "m.a", "a", "mm.a", "")] == ["n.o", "n.o.a", "", "", ""]


class Wrapper(torch.nn.Module):
    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, x):
        return tuple(self.model(x + 0).values())


def by_torch_script(module, x):
    stream = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(module, (x,), stream, dynamo=False, input_names=["x"])
    return ir.from_proto(onnx.load_from_string(stream.getvalue()))


def by_torch_onnx(module, x):
    return export_program(torch.export.export(module, (x,)), 20, optimize=True)


def by_us(module, x):
    return convert(torch.export.export(module, (x,)))


def spoil(model):
    """Make the weight of the second block's linear layer 1 % larger; gives what reads it."""
    weights = model.graph.initializers
    names = [name for name, v in weights.items() if v.shape == [6, 6] and v.uses()]
    weight = weights[names[1]]
    weight.const_value = ir.tensor(weight.const_value.numpy() * np.float32(1.01))
    return next(iter(weight.uses())).node


@pytest.mark.parametrize(
    ("export", "against"),
    in_turn([by_torch_script, by_torch_onnx, by_us], ["program", "eager", "dump"]),
)
def test_a_model_exported_inside_another_is_aligned_as_alone(small, export, against, tmp_path):
    (x,) = small.args
    reference, settings = small.module, {"against": against}
    if against == "dump":
        reference, settings = tmp_path / "calls.safetensors", {}
        with steal_forward(small.module, None, reference, submodules=True), torch.no_grad():
            small.module(x)
    alone = compare(reference, export(small.module, x), (x,), **settings)
    wrapped = export(Wrapper(small.module), x)
    found = compare(reference, wrapped, (x,), **settings)
    assert found.ok
    assert len(found.rows) >= len(alone.rows) > 6
    node = spoil(wrapped)
    spoiled = compare(reference, wrapped, (x,), **settings)
    assert spoiled.first is not None
    assert spoiled.first.layer == "model.blocks.1.linear"
    assert node.name in {spoiled.first.node, *spoiled.suspects}


class Convolved(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first = torch.nn.Sequential(torch.nn.Conv2d(2, 3, 3), torch.nn.BatchNorm2d(3))
        self.second = torch.nn.Conv2d(3, 4, 3)
        self.norm = torch.nn.BatchNorm2d(4)

    def forward(self, x):
        return self.norm(self.second(self.first(x).relu())).tanh()


@pytest.mark.parametrize("against", ["program", "eager"])
def test_a_convolution_that_has_taken_in_what_normalizes_it_stands_for_that(against):
    model = Convolved()
    with torch.no_grad():
        for _ in range(3):  # in training: the averages move
            model(torch.randn(8, 2, 9, 9) * 3 + 1)
    model.eval()
    x = torch.randn(2, 2, 9, 9)
    onnx_model = by_torch_script(model, x)
    assert [node.op_type for node in onnx_model.graph] == ["Conv", "Relu", "Conv", "Tanh"]
    found = compare(model, onnx_model, (x,), against=against)
    assert found.ok
    assert len(found.rows) >= 3
    assert not any("conv" in row.origin for row in found.rows)
    weight = onnx_model.graph[2].inputs[1]
    weight.const_value = ir.tensor(weight.const_value.numpy() * np.float32(1.01))
    assert compare(model, onnx_model, (x,), against=against).first.node == "/second/Conv"
