from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch
from torch import nn

from torchferry.diagnoser import diagnose, trace_execution_piece_by_piece
from torchferry.diagnoser.record.functions import Function, find_functions, routed
from torchferry.errors import UsageError

HERE = sys.modules[__name__]
INPUTS = [(torch.ones(rows, 4),) for rows in (2, 5)]


def scaled(x: torch.Tensor, *, by: float = 2.0) -> torch.Tensor:
    return x * by


def signed(x: torch.Tensor) -> torch.Tensor:
    return x if x.sum() > 0 else -x  # fault


class Caller(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lin = nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return signed(scaled(self.lin(x), by=3.0))


@pytest.fixture
def names(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Where this file's functions are found, however pytest has imported it."""
    monkeypatch.setitem(sys.modules, "functions_of_a_model", HERE)
    return ["functions_of_a_model.scaled", "functions_of_a_model.signed"]


def test_functions_are_pieces_of_their_first_caller(names: list[str]) -> None:
    model = nn.Sequential(Caller(), Caller())
    tree = trace_execution_piece_by_piece(model, INPUTS, traced_functions=names)
    assert [piece.path for piece in tree.walk()] == [
        "", "0", "0.lin", "0::scaled", "0::signed", "1", "1.lin",
    ]  # fmt: skip
    piece = tree.children[0].children[1]
    assert [len(call.outputs) for call in piece.calls] == [2, 2, 5, 5]
    assert [call.kwargs for call in piece.calls] == [{"by": 3.0}] * 4
    assert torch.equal(piece.calls[0].outputs, 3 * piece.calls[0].args[0])
    assert piece.dot_name == "....scaled"
    assert piece.try_export().is_ok()


def test_the_functions_are_as_they_were(names: list[str]) -> None:
    before = scaled, signed

    class Broken(Caller):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            scaled(x)
            raise RuntimeError("no")

    with pytest.raises(UsageError, match="raises RuntimeError: no"):
        trace_execution_piece_by_piece(Broken(), INPUTS, traced_functions=names)
    diagnose(Caller(), INPUTS, traced_functions=names)
    assert (scaled, signed) == before


def test_a_function_at_fault_is_named_once_for_all_its_callers(
    names: list[str], tmp_path: Path
) -> None:
    model = nn.Sequential(Caller(), Caller()).eval()
    found = diagnose(
        model, INPUTS, traced_functions=names, export_rest=tmp_path / "rest.onnx",
        reproduce=tmp_path,
    )  # fmt: skip
    (culprit,) = found.culprits
    assert culprit.places == ("0::signed",)
    assert "# fault" in str(culprit.status.line)
    assert "is a function" in culprit.refused
    second = found.tree.children[1].exporter_status
    assert second is not None
    assert second.blame == ("0::signed",)
    x = torch.randn(3, 4)
    torch.testing.assert_close(found.open_rest()(x), model(x).detach())


def test_calls_from_elsewhere_are_not_recorded(names: list[str]) -> None:
    tree = trace_execution_piece_by_piece(nn.Linear(4, 4), INPUTS, traced_functions=names)
    assert tree.children == []


@pytest.mark.parametrize(
    "place", ["scaled", "functions_of_a_model.no", "no.such.thing", "math.pi"]
)
def test_what_is_no_function_is_refused(names: list[str], place: str) -> None:
    with pytest.raises(UsageError, match=r"no function (is found|written)"):
        find_functions([place])


def test_one_text_is_no_list() -> None:
    with pytest.raises(UsageError, match=r"\['a.b'\]"):
        find_functions("a.b")


def test_callers_are_led_elsewhere_within_the_block(names: list[str]) -> None:
    with routed([Function(names[0])], lambda one, args, kwargs: (one.place, args, kwargs)):
        made: object = scaled(torch.ones(1), by=2)
        assert made == (names[0], (torch.ones(1),), {"by": 2})
    assert scaled(torch.ones(1)).tolist() == [2.0]


def test_a_function_that_is_not_written_in_python():
    with pytest.raises(
        UsageError, match="no function written in Python: name the function around"
    ):
        find_functions(["torch.nn.functional.softplus"])
