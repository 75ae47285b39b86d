from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from torchferry.diagnoser.output import trace_execution_piece_by_piece
from torchferry.diagnoser.record.recorder import recorded
from torchferry.diagnoser.record.tree import Piece, build_tree
from torchferry.errors import UsageError


class Coder(nn.Module):
    def encode(self, x: torch.Tensor) -> torch.Tensor:
        return x + 1


class UseCoder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.coder = Coder()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.coder.encode(x)


def test_containers_are_left_out_and_shared_modules_stand_once(layers: nn.Module) -> None:
    root = build_tree(Piece, layers)
    assert [(p.dot_name, p.path, p.full_name) for p in root.walk()] == [
        ("__main__", "", "__main__:Layers"),
        ("..layers[0]", "layers.0", "layers[0]:Linear"),
        ("..layers[1][0]", "layers.1.0", "layers[1][0]:ReLU"),
        ("..named[act]", "named.act", "named[act]:GELU"),
        ("..never", "never", "never:Tanh"),
    ]
    assert [p.custom_op_name for p in root.walk()] == [
        "C_Layers",
        "C_Layers_layers_0",
        "C_Layers_layers_1_0",
        "C_Layers_named_act",
        "C_Layers_never",
    ]
    assert root.children[0].module_name_type == "type(layers[0])=Linear"
    assert root.children[0].parent is root
    assert root.device == torch.device("cpu")


@pytest.mark.parametrize("key", ["coder", "Coder", Coder])
def test_another_method_is_traced_by_path_or_class(key: Any) -> None:
    root = build_tree(Piece, UseCoder(), {key: "encode"})
    with recorded(root):
        root.model(torch.zeros(2))
    (coder,) = root.children
    assert (coder.dot_name, coder.full_name) == ("..coder::encode", "coder:Coder.encode")
    assert len(coder.calls) == 1


def test_what_has_no_method_to_trace_is_left_out_or_refused(layers: nn.Module) -> None:
    assert build_tree(Piece, UseCoder()).children == []
    assert build_tree(Piece, layers, {"Linear": "", "never": None}).children[0].title == "ReLU"
    with pytest.raises(UsageError, match="traced_method"):
        build_tree(Piece, Coder())
    with pytest.raises(UsageError, match="no such method"):
        build_tree(Piece, UseCoder(), {"Coder": "decode"})


def test_a_call_may_be_added_by_hand() -> None:
    piece = build_tree(Piece, nn.ReLU())
    x = torch.ones(2)
    piece.add_call((x,), {}, x)
    x.zero_()
    assert torch.equal(piece.calls[0].args[0], torch.ones(2))
    assert piece.normalized((x,), {})[1].keys() == {"input"}


@pytest.mark.filterwarnings("ignore:`torch.jit")  # a FutureWarning from torch 2.14 on
def test_a_scripted_part_is_a_piece_that_cannot_be_exported():
    model = nn.Sequential(torch.jit.script(nn.Linear(4, 4)), nn.ReLU())
    found = trace_execution_piece_by_piece(model, [(torch.rand(n, 4),) for n in (2, 3)])
    scripted, relu = found.children
    assert len(scripted.calls) == 2
    found.try_export(exporter="fx", quiet=True)
    assert "ScriptModule" in scripted.exporter_status.reason
    assert relu.exporter_status.is_ok()


@pytest.mark.parametrize("model", [3, None, nn.Linear])
def test_what_is_no_module_is_refused(model: Any) -> None:
    with pytest.raises(UsageError, match=r"give a torch\.nn\.Module"):
        build_tree(Piece, model)


@pytest.mark.filterwarnings("ignore:`torch.jit")
def test_a_traced_part_is_a_piece_that_takes_anything() -> None:
    traced = torch.jit.trace(nn.ReLU(), torch.ones(2, 4))
    root = build_tree(Piece, nn.Sequential(nn.Linear(4, 4), traced))
    assert [piece.path for piece in root.walk()] == ["", "0", "1"]
    assert str(root.children[1].signature) == "(*args, **kwargs)"
    assert str(build_tree(Piece, traced).signature) == "(*args, **kwargs)"


def test_a_compiled_model_is_refused_with_what_to_give() -> None:
    with pytest.raises(UsageError, match=r"torch\.compile of a Linear.*give model\._orig_mod"):
        build_tree(Piece, torch.compile(nn.Linear(2, 2), backend="eager"))
