from __future__ import annotations

import onnx_ir as ir
import pytest
import torch

from families import in_turn
from torchferry.comparer.reference.anew import twins
from torchferry.comparer.run.piece import Runner
from torchferry.comparer.setting import set_up
from torchferry.converter import convert
from torchferry.converter.torch_onnx import Flat, export_program, export_script
from torchferry.values.caches import make_static_cache
from torchferry.values.clone import clone


def kinds(model: ir.Model) -> list[str]:
    return [node.op_type for node in model.graph]


class Joins(torch.nn.Module):
    """Sizes that are constants in a static export, and computed in a dynamic one."""

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return torch.cat([x, y], 0) * (x.shape[0] + y.shape[0])


def dynamic_program(module: torch.nn.Module, args: tuple[torch.Tensor, ...]):
    sizes = tuple({0: torch.export.Dim(name)} for name in ("n", "m"))
    return torch.export.export(module, args, dynamic_shapes=sizes)


@pytest.mark.parametrize(("against", "by_torch"), in_turn(["program", "eager"], [False, True]))
def test_a_twin_of_a_module_has_the_dynamic_sizes_of_the_file(against, by_torch):
    module, args = Joins(), (torch.randn(2, 3), torch.randn(4, 3))
    program = dynamic_program(module, args)
    onnx = export_program(program, 20, optimize=False) if by_torch else convert(program)
    (setting,), _ = set_up(module, onnx, args, against=against, runner=Runner())
    twin = [*twins(setting)][-1]
    assert kinds(twin.model) == kinds(onnx)
    assert "Shape" in kinds(onnx)
    assert all(map(torch.equal, twin.feeds.values(), args))


class Writes(torch.nn.Module):
    def forward(self, x, cache):
        keys = cache.layers[0].keys
        keys[:, :, : x.shape[2]] = x
        return keys.sum(-1)


def test_the_arguments_stay_as_they_were_when_a_twin_is_traced():
    cache = make_static_cache([(torch.zeros(1, 2, 4, 3), torch.zeros(1, 2, 4, 3))], 4)
    module, x = Writes(), torch.ones(1, 2, 2, 3)
    flat = Flat(module, clone(((x, cache), {})))
    names = ["x", "past_key_values.0.key", "past_key_values.0.value", "length"]
    onnx = export_script(flat, names, {}, 18)
    (setting,), _ = set_up(module, onnx, (x, cache), against="eager", runner=Runner())
    (twin,) = twins(setting)
    assert [*twin.feeds] == [f"input_{number}" for number in range(4)]
    assert not twin.feeds["input_1"].any()


def test_what_cannot_be_exported_has_no_twin():
    class Chooses(torch.nn.Module):
        def forward(self, x):
            return x.exp() if x.sum() > 0 else x.sum()

    onnx = convert(torch.export.export(torch.nn.Flatten(0), (torch.ones(3),)))
    (setting,), _ = set_up(Chooses(), onnx, (torch.ones(3),), against="eager", runner=Runner())
    assert [*twins(setting)] == []
