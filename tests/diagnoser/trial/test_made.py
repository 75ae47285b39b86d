from __future__ import annotations

from pathlib import Path
from typing import Any

import onnx_ir as ir
import pytest
import torch
from torch import nn

from torchferry.diagnoser import diagnose
from torchferry.diagnoser.record.recorder import recorded
from torchferry.diagnoser.record.tree import Piece, build_tree
from torchferry.diagnoser.replace.segment import plain_signature
from torchferry.diagnoser.trial.made import arguments_of, as_module, save_to_run, tensors_of
from torchferry.observer import Observation
from torchferry.runner import Session
from torchferry.values.signature import SIGNATURE_KEY

HALF = """
<ir_version: 10, opset_import: ["" : 20]>
agraph (bfloat16[N] x) => (bfloat16[N] y)
{
    y = Relu(x)
}
"""


class Nested(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lin = nn.Linear(4, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.lin(x)

    def other(self, x: torch.Tensor) -> torch.Tensor:
        """A second method."""
        return self.lin(x) - 1


def test_a_method_becomes_a_module() -> None:
    model = Nested().eval()
    assert as_module(Piece(None, "nested", model)) is model
    made = as_module(Piece(None, "nested", model, method_name="other"))
    x = torch.rand(2, 4)
    assert torch.equal(made(x), model.other(x))
    assert not made.training
    program = torch.export.export(made, (x,))
    assert torch.equal(program.module()(x), model.other(x))


@pytest.mark.parametrize("named", [False, True])
def test_hooks_see_arguments_as_they_did(named: bool) -> None:
    seen = []
    model = nn.Linear(4, 3)
    model.register_forward_pre_hook(lambda _, args: seen.append(len(args)))
    piece = build_tree(Piece, model)
    x = torch.rand(2, 4)
    with recorded(piece):
        model(input=x) if named else model(x)
    made = as_module(piece)
    assert made is not model
    assert torch.equal(made(input=x), model(x))
    assert seen == [0 if named else 1, 0 if named else 1, 1]


def test_tensors_are_found_in_order() -> None:
    x, y = torch.ones(1), torch.zeros(2)
    assert [*map(id, tensors_of(({"a": x}, None, [y, 3])))] == [id(x), id(y)]


def test_arguments_have_their_names() -> None:
    model = Nested()
    x = torch.rand(2, 4)
    seen = Observation.from_inputs(model, [((x,), {}), ((torch.rand(5, 4),), {})])
    args, kwargs = arguments_of(model, seen, seen.calls[0])
    assert (args, list(kwargs)) == ((), ["x"])


def test_what_onnxruntime_has_no_kernel_for_runs_in_float32(tmp_path: Path) -> None:
    model = ir.from_onnx_text(HALF)
    model.metadata_props[SIGNATURE_KEY] = plain_signature(model.graph).to_json()
    session = Session(save_to_run(model, str(tmp_path)))
    x = torch.tensor([-1.0, 2.0], dtype=torch.bfloat16)
    assert torch.equal(session(x)[0], x.relu())


class Counted(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> dict[str, Any]:
        return {"y": x + 1, "count": 3}


def test_where_that_is_asked_for_the_tensors_alone_are_returned() -> None:
    piece = Piece(None, "counted", Counted())
    x = torch.zeros(2)
    piece.add_call((x,), {}, {"y": x + 1, "count": 3})
    assert as_module(piece) is piece.model
    (y,) = as_module(piece, flat=True)(x)
    assert y.tolist() == [1, 1]
    plain = Piece(None, "plain", torch.nn.ReLU())
    plain.add_call((x,), {}, (x, None))
    assert as_module(plain, flat=True) is plain.model


@pytest.mark.parametrize("exporter", ["fx", "torch_script"])
def test_an_exported_program_is_a_model_too(exporter: str) -> None:
    rows = {0: torch.export.Dim.DYNAMIC}
    program = torch.export.export(nn.Linear(4, 3), (torch.rand(2, 4),), dynamic_shapes=(rows,))
    for model in (program.module(), nn.Sequential(program.module(), nn.ReLU())):
        model.register_forward_hook(lambda *_: None)  # so that it is entered by a method
        found = diagnose(model, [(torch.rand(n, 4),) for n in (2, 5)], exporter=exporter)
        assert found.culprits == ()


def test_parts_keep_their_modes() -> None:
    model = Nested().train()
    model.lin.eval()
    made = as_module(Piece(None, "nested", model, method_name="other"))
    assert (made.training, model.training, model.lin.training) == (True, True, False)
