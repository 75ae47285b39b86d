"""Modules that can be exported with some of the calls that are made of them, not with others."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from families import slow_among
from torchferry.diagnoser.output import ModelDiagnoseOutput, trace_execution_piece_by_piece
from torchferry.diagnoser.replace.strategy import CustomOpStrategy
from torchferry.diagnoser.search import Search
from torchferry.diagnoser.trial.option import Options


def searched(tree: ModelDiagnoseOutput, exporter: str) -> Search:
    made = Search(Options(exporter), CustomOpStrategy.ONLY_IF_FAILING, below=False)
    made.visit(tree)
    return made


class Layer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x: torch.Tensor, number: int) -> torch.Tensor:
        if number == 2 and x.sum() > 0:  # the third call alone
            return x
        return self.linear(x) * number


class Loops(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = Layer()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for number in range(4):
            x = self.layer(x, number)
        return x


def test_a_piece_that_fails_in_some_of_its_calls_is_the_one_at_fault() -> None:
    root = trace_execution_piece_by_piece(Loops(), [(torch.ones(n, 4),) for n in (2, 5)])
    search = searched(root, "fx")
    (culprit,) = search.culprits(root)
    found = search.verdicts[id(culprit)]
    assert culprit.path == "layer"
    assert found.line is not None
    assert "if number == 2 and x.sum() > 0" in found.line
    assert found.notes[-1].startswith("only 2 of its 8 calls were tried")
    assert search.verdicts[id(root)].blame == ("layer",)


class Scaled(Layer):
    def forward(self, x: torch.Tensor, number: int) -> torch.Tensor:
        if number == 2:
            return x * (3.0 if torch.compiler.is_compiling() else x.numpy()[0, 0])
        return self.linear(x)


class Fixes(Layer):
    def forward(self, x: torch.Tensor, number: int) -> torch.Tensor:
        return x * float(len(range(x.shape[0]))) if number == 2 else self.linear(x)


UNKNOWING = ("onnx_dynamo", "torch_script")  # of the line that fixes a size


@pytest.mark.sample(2)
@pytest.mark.parametrize(
    ("exporter", "layer", "code"),
    slow_among(
        [
            (exporter, *layer)
            for exporter in ("fx", "onnx_dynamo", "torch_script", "to_onnx")
            for layer in ((Scaled, "x.numpy()"), (Fixes, "len(range("))
        ],
        [
            ("onnx_dynamo", Scaled, "x.numpy()"),
            ("torch_script", Fixes, "len(range("),
            ("fx", Fixes, "len(range("),
        ],
    ),
)
def test_so_is_one_that_is_wrong_in_some_of_them(
    layer: type[Layer], code: str, exporter: str
) -> None:
    model = Loops()
    model.layer = layer()
    root = trace_execution_piece_by_piece(model, [(torch.randn(n, 4),) for n in (2, 5)])
    search = searched(root, exporter)
    (culprit,) = search.culprits(root)
    assert culprit.path == "layer"
    found = search.verdicts[id(culprit)]
    assert found.notes[-1].startswith("only 2 of its 8 calls were tried")
    assert found.line is None or code in found.line
    assert found.line is not None or (layer is Fixes and exporter in UNKNOWING)
