"""A small model with everything a comparison meets: modules in modules, two uses of one value."""

from __future__ import annotations

from dataclasses import dataclass

import onnx_ir as ir
import pytest
import torch
from torch.export import ExportedProgram

from torchferry.converter import convert


class Block(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = torch.nn.LayerNorm(6)
        self.linear = torch.nn.Linear(6, 6)
        self.act = torch.nn.SiLU()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.act(self.linear(self.norm(x)))


class Net(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.blocks = torch.nn.ModuleList([Block(), Block()])
        self.head = torch.nn.Linear(6, 4)

    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        for block in self.blocks:
            x = block(x)
        return {"logits": self.head(x), "top": x.argmax(-1)}


@dataclass
class Small:
    module: torch.nn.Module
    program: ExportedProgram
    onnx: ir.Model
    args: tuple[torch.Tensor, ...]

    def value(self, name: str) -> ir.Value:
        return next(v for node in self.onnx.graph for v in node.outputs if v.name == name)

    def node(self, op_type: str, number: int = 0) -> ir.Node:
        return [node for node in self.onnx.graph if node.op_type == op_type][number]

    def spoil(self, node: ir.Node, index: int, factor: float = 1.01) -> str:
        """Scale a weight of a node; gives the node's name."""
        known = node.inputs[index]
        array = known.const_value.numpy() * factor
        changed = ir.Value(name=f"{known.name}_changed", const_value=ir.tensor(array.astype("f4")))
        changed.type, changed.shape = ir.TensorType(ir.DataType.FLOAT), ir.Shape(array.shape)
        self.onnx.graph.register_initializer(changed)
        node.replace_input_with(index, changed)
        return str(node.name)


@pytest.fixture
def small() -> Small:
    torch.manual_seed(0)
    module = Net().eval()
    args = (torch.randn(3, 6),)
    program = torch.export.export(module, args, strict=False)
    return Small(module, program, convert(program), args)
