from __future__ import annotations

import dataclasses
from pathlib import Path

import onnx_ir as ir
import pytest
import torch
from torch import nn

from torchferry.diagnoser import ModelDiagnoseOutput, trace_execution_piece_by_piece
from torchferry.diagnoser.replace.fallback import RestSession
from torchferry.diagnoser.replace.rest import rest_note, write_rest
from torchferry.diagnoser.trial.option import Options
from torchferry.errors import UsageError


def test_culprits_are_operators_with_names_and_shapes(
    tree: ModelDiagnoseOutput, tmp_path: Path
) -> None:
    bad = tree.children[0].children[1]
    path = write_rest(tree, [bad], tmp_path / "rest.onnx")
    model = ir.load(path)
    (node,) = [node for node in model.graph if node.domain == "diag_lib"]
    assert node.op_type == "C_Model_b1_bad"
    assert [str(value.shape) for value in node.outputs] == ["[batch_size,8]"]
    assert len(node.inputs) == 2
    assert {value.name for value in model.graph.inputs} == {"x", "mask"}
    assert "diag_lib" in model.opset_imports
    assert len(list(model.graph)) > 3


def test_nothing_is_left_of_a_model_that_is_at_fault_itself(
    tree: ModelDiagnoseOutput, tmp_path: Path
) -> None:
    with pytest.raises(UsageError, match="nothing would be left"):
        write_rest(tree, [tree], tmp_path / "rest.onnx")
    assert list(tmp_path.iterdir()) == []


class Wrong(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * 2 if torch.compiler.is_exporting() else x * 3


class Draws(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + torch.rand_like(x)


@pytest.mark.parametrize(
    ("part", "replaced", "words"),
    [
        (Wrong, False, "gives other numbers than PyTorch"),
        (Wrong, True, ""),
        (Draws, False, "not compared"),
        (nn.Tanh, False, ""),
    ],
)
def test_the_rest_is_compared_with_what_was_recorded(
    part: type[nn.Module], replaced: bool, words: str, tmp_path: Path
) -> None:
    model = nn.Sequential(nn.Linear(4, 4), part(), nn.ReLU()).eval()
    tree = trace_execution_piece_by_piece(model, [(torch.randn(n, 4),) for n in (2, 5)])
    culprits = [tree.children[1]] if replaced else []
    session = RestSession(write_rest(tree, culprits, tmp_path / "rest.onnx"), culprits)
    note = rest_note(tree, session, Options())
    assert words in note
    assert bool(words) == bool(note)


def test_a_rest_that_does_not_run_is_said_to(tmp_path: Path) -> None:
    part = nn.Tanh()
    model = nn.Sequential(nn.Linear(4, 4), part).eval()
    tree = trace_execution_piece_by_piece(model, [(torch.randn(n, 4),) for n in (2, 5)])
    culprits = [tree.children[1]]
    session = RestSession(write_rest(tree, culprits, tmp_path / "rest.onnx"), culprits)

    def fails(**_: torch.Tensor) -> None:
        raise ValueError("no more")

    session._operators = {
        name: dataclasses.replace(one, compute=fails) for name, one in session._operators.items()
    }
    assert rest_note(tree, session, Options()) == "it does not run on recorded inputs: no more"
