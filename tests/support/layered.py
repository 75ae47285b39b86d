"""A small model of equal layers, its saved export, and changes to the file."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import onnx_ir as ir
import torch
from torch import nn

import torchferry as tf
from torchferry.graph import io

WIDTH = 8


class Layer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)
        self.up = nn.Linear(WIDTH, 12)
        self.down = nn.Linear(12, WIDTH)

    def forward(self, x: torch.Tensor, shift: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        y = self.norm(x) + shift
        return x + self.down(torch.tanh(self.up(y))), y


class Layered(nn.Module):
    """Four layers between an embedding and a head; returns what each layer kept, too."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(20, WIDTH)
        self.layers = nn.ModuleList(Layer() for _ in range(4))
        self.norm = nn.LayerNorm(WIDTH)
        self.head = nn.Linear(WIDTH, 20, bias=False)

    def forward(self, tokens: torch.Tensor, shift: torch.Tensor) -> dict[str, Any]:
        x, kept = self.embed(tokens), []
        for layer in self.layers:
            x, y = layer(x, shift)
            kept.append(y)
        return {"scores": self.head(self.norm(x)), "kept": kept}


def layered() -> nn.Module:
    torch.manual_seed(0)
    return Layered().eval()


def arguments(batch: int, length: int) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.randint(0, 20, (batch, length)), torch.randn(batch, length, WIDTH)


def saved(model: nn.Module, folder: Path) -> tuple[Path, Any]:
    """The file of an export that was not verified, and its program."""
    shapes = ({0: "batch", 1: "length"}, {0: "batch", 1: "length"})
    made = tf.to_onnx(model, arguments(2, 3), dynamic_shapes=shapes)
    made.save(folder / "model.onnx")
    return folder / "model.onnx", made.program


def changed(path: Path, change: Callable[[ir.Model], None]) -> Path:
    """A copy of a file, with something changed in it."""
    model = io.load(path)
    change(model)
    other = path.with_name("changed.onnx")
    io.save(model, other)
    return other


def of_layer(model: ir.Model, number: int, op_type: str) -> list[ir.Node]:
    where = f"'layers.{number}"
    return [n for n in model.graph if n.op_type == op_type and where in str(n.metadata_props)]


def wrong_weight(model: ir.Model) -> None:
    (value,) = [v for n, v in model.graph.initializers.items() if "layers.3.up.weight" in str(n)]
    array = value.const_value.numpy().copy()
    array.flat[5] += 1.0
    value.const_value = ir.Tensor(array, name=value.name)


def wrong_operator(model: ir.Model) -> None:
    of_layer(model, 2, "Tanh")[0].op_type = "Sigmoid"


def wrong_wire(model: ir.Model) -> None:
    """Layer 3 reads what layer 1 made, in the place of layer 2's."""
    right, wrong = (of_layer(model, n, "Add")[-1].outputs[0] for n in (2, 1))
    for node in of_layer(model, 3, "LayerNormalization"):
        assert node.inputs[0] is right
        node.replace_input_with(0, wrong)


def shared_weight(model: ir.Model) -> None:
    """Layer 3 reads a weight of layer 2."""
    names = {str(name): value for name, value in model.graph.initializers.items()}
    right, wrong = (
        next(v for n, v in names.items() if f"layers.{i}.up.weight" in n) for i in (3, 2)
    )
    for node, index in [(use.node, use.idx) for use in right.uses()]:
        node.replace_input_with(index, wrong)


def swapped_outputs(model: ir.Model) -> None:
    """What layers 2 and 3 kept change places."""
    one, other = list(model.graph.outputs)[-2:]
    names = one.name, other.name
    one.name, other.name = "a", "b"
    other.name, one.name = names
