from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from torchferry.diagnoser import (
    CustomOpStrategy,
    ModelDiagnoseOutput,
    StatusExport,
    StatusExportCode,
)
from torchferry.diagnoser import search as search_room
from torchferry.diagnoser.explain.blame import advice_for
from torchferry.diagnoser.output import trace_execution_piece_by_piece
from torchferry.diagnoser.record.tree import Piece
from torchferry.diagnoser.search import Search
from torchferry.diagnoser.trial.option import Options
from torchferry.diagnoser.trial.process import Limits

FAILING = CustomOpStrategy.ONLY_IF_FAILING


def searched(tree: ModelDiagnoseOutput, **options: object) -> Search:
    made = Search(Options(), FAILING, below=False, **options)
    made.visit(tree)
    return made


def traced(model: nn.Module, *shape: int) -> ModelDiagnoseOutput:
    return trace_execution_piece_by_piece(model, [(torch.randn(n, *shape),) for n in (2, 5)])


class Positive(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = x[x > 0]
        return y if len(y) > 3 else y + 1


class Sums(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.positive = Positive()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.positive(x).sum()


class Both(nn.Module):
    """Its own code is at fault too."""

    def __init__(self, bad: nn.Module) -> None:
        super().__init__()
        self.bad = bad

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.bad(x)
        return y if y.mean() > 0 else -y


class Decides(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x if x.sum() > 0 else -x


class Listed(nn.Module):
    """A Sequential that is gone through, never called."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(4, 4), Decides())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = layer(x)
        return x


def test_what_works_is_not_looked_into(tree: ModelDiagnoseOutput) -> None:
    search = searched(tree)
    assert [piece.path for piece in tree.walk() if id(piece) not in search.verdicts] == [
        "b1.good.lin"
    ]
    assert [piece.path for piece in search.culprits(tree)] == ["b1.bad"]


def test_a_piece_whose_shape_is_not_known_is_blamed_all_the_same() -> None:
    tree = traced(Sums(), 30)
    search = searched(tree)
    assert [piece.path for piece in search.culprits(tree)] == ["positive"]
    status = search.verdicts[id(tree)]
    assert status.failed
    assert status.blame == ("positive",)
    assert "shape_functions={'Positive'" in status.notes[-1]


def test_both_are_culprits_where_both_are() -> None:
    tree = traced(Both(Decides()), 4)
    search = searched(tree)
    assert [piece.path for piece in search.culprits(tree)] == ["bad", ""]
    assert str(search.verdicts[id(tree)].status) == "FAIL_CHILDC"


def test_a_list_that_is_never_called_is_looked_into() -> None:
    tree = traced(Listed(), 4)
    search = searched(tree)
    assert [piece.path for piece in search.culprits(tree)] == ["layers.1"]
    assert [str(search.verdicts[id(piece)].status) for piece in tree.walk()] == [
        "OK_CHILDC", "NOINPUT", "OK", "FAIL",
    ]  # fmt: skip
    local = Search(Options(), CustomOpStrategy.LOCAL)
    assert str(local.visit(tree).status) == "OK_CHILDC"


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of fork, from Python 3.12 on
def test_each_piece_may_have_a_process_of_its_own(tree: ModelDiagnoseOutput) -> None:
    search = searched(tree, limits=Limits(seconds=120))
    assert [piece.path for piece in search.culprits(tree)] == ["b1.bad"]
    assert search.verdicts[id(tree)].made == "ExportedProgram"
    assert search.verdicts[id(tree)].exported is None


def status(code: StatusExportCode, line: str | None = None, advice: str = "") -> StatusExport:
    return StatusExport(code, "EXPORT", "why", line=line, advice=advice)


def scripted(
    monkeypatch: pytest.MonkeyPatch, verdicts: dict[tuple[str, bool], StatusExport]
) -> list[tuple[str, bool]]:
    """Let pieces fare as it is said: by path, and whether by one way of exporting only."""
    tried = []

    def fake(piece: Piece, options: Options, *, compare: bool = True, once: bool = False) -> Any:
        if not piece.calls:
            return StatusExport(StatusExportCode.NOINPUT)
        tried.append((piece.path, once))
        return verdicts.get((piece.path, once), status(StatusExportCode.OK))

    monkeypatch.setattr(search_room, "try_piece", fake)
    return tried


def test_what_contains_a_fault_is_tried_by_one_way_only(
    tree: ModelDiagnoseOutput, monkeypatch: pytest.MonkeyPatch
) -> None:
    fails = status(StatusExportCode.FAIL, "model.py:3")
    failing = {("", True): fails, ("b1", True): fails, ("b1.bad", False): fails}
    tried = scripted(monkeypatch, failing)
    search = searched(tree)
    assert [piece.path for piece in search.culprits(tree)] == ["b1.bad"]
    # Once by one way, once with the part replaced.
    assert [once for path, once in tried if path == ""] == [True, False]
    assert search.verdicts[id(tree)].blame == ("b1.bad",)


def test_a_part_that_fails_for_itself_is_no_fault_of_what_works(
    tree: ModelDiagnoseOutput, monkeypatch: pytest.MonkeyPatch
) -> None:
    fails = status(StatusExportCode.FAIL, "model.py:3")
    other = status(StatusExportCode.FAIL, "other.py:9")
    scripted(monkeypatch, {("", True): fails, ("head", False): other})
    search = searched(tree)
    assert search.verdicts[id(tree)].is_ok()
    assert list(search.culprits(tree)) == []
    assert id(tree.children[1]) not in search.verdicts


def test_reasons_of_one_kind_explain_one_another(
    tree: ModelDiagnoseOutput, monkeypatch: pytest.MonkeyPatch
) -> None:
    fixes = advice_for("Constraints violated (batch)!")
    whole = status(StatusExportCode.FAIL, None, fixes)
    part = status(StatusExportCode.FAIL, "model.py:3", advice_for("x was fixed to 2"))
    tried = scripted(monkeypatch, {("", True): whole, ("head", False): part})
    search = searched(tree)
    assert [piece.path for piece in search.culprits(tree)] == ["head"]
    assert tried.count(("", False)) == 1  # with the part replaced
    unknown = status(StatusExportCode.FAIL, None, advice_for("something else"))
    odd = status(StatusExportCode.FAIL, "model.py:3", advice_for("another thing"))
    tried = scripted(monkeypatch, {("", True): unknown, ("head", False): odd})
    search = searched(tree)
    assert list(search.culprits(tree)) == []  # all ways were tried, and one worked


class Holds(nn.Module):
    """Calls what another one holds."""

    def __init__(self, part: nn.Module, *, registered: bool) -> None:
        super().__init__()
        self.parts = nn.ModuleList([part]) if registered else [part]
        self.lin = nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.parts[0](self.lin(x))


@pytest.mark.parametrize("registered", [True, False])
def test_a_shared_module_is_the_only_culprit(registered: bool) -> None:
    decides = Decides()
    first = nn.Sequential(nn.Linear(4, 4), decides)
    tree = traced(nn.Sequential(first, Holds(decides, registered=registered)), 4)
    search = searched(tree)
    assert [piece.path for piece in search.culprits(tree)] == ["0.1"]
    assert search.verdicts[id(tree.children[1])].blame == ("0.1",)


def test_a_shared_module_that_its_owner_never_calls_is_found() -> None:
    class Owner(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.decides = Decides()

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x + 1

    owner = Owner()
    tree = traced(nn.Sequential(owner, Holds(owner.decides, registered=False)), 4)
    search = searched(tree)
    assert [piece.path for piece in search.culprits(tree)] == ["0.decides"]
    assert search.verdicts[id(tree)].blame == ("0.decides",)


def test_what_contains_a_part_that_never_repeats_itself_is_not_compared() -> None:
    class Counts(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.calls = 0

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.calls += 1
            return x + self.calls

    tree = traced(nn.Sequential(nn.Linear(4, 4), Counts()), 4)
    search = searched(tree)
    assert [piece.path for piece in search.culprits(tree)] == ["1"]
    assert str(search.verdicts[id(tree)].status) == "OK_CHILDC"


@pytest.mark.slow  # torch.onnx tries several ways for each
def test_what_one_way_of_exporting_takes_is_not_blamed_on_what_contains_it() -> None:
    class Adds(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x + len(x)  # Dynamo's way takes it, and does not take operators in its place

    tree = traced(nn.Sequential(Adds(), Decides()), 4)
    made = Search(Options("onnx_dynamo"), FAILING, below=False)
    made.visit(tree)
    assert [piece.path for piece in made.culprits(tree)] == ["1"]
    assert "replaced alone it fails" in made.verdicts[id(tree)].notes[-1]


def test_without_operators_the_lines_say_who_is_at_fault() -> None:
    tree = traced(nn.Sequential(nn.Linear(4, 4), Decides()), 4)
    made = Search(Options("fx", {"strict": True}), FAILING, below=False)
    made.visit(tree)
    assert [piece.path for piece in made.culprits(tree)] == ["1"]
    assert "strict=True" in made.verdicts[id(tree)].notes[-1]


class Draws(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + torch.randn_like(x)


class Wrong(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * 2 if torch.compiler.is_exporting() else x * 3


@pytest.mark.parametrize("exporter", ["fx", "to_onnx"])
def test_a_fault_behind_random_numbers_is_found(exporter: str) -> None:
    tree = traced(nn.Sequential(Draws(), nn.Linear(4, 4), Wrong()), 4)
    made = Search(Options(exporter), FAILING, below=False)
    status = made.visit(tree)
    assert [piece.path for piece in made.culprits(tree)] == ["2"]
    assert (str(status.status), status.blame) == ("OK_CHILDC", ("2",))
    # Without operators it is told too.
    status = Search(Options(exporter)).visit(tree)
    assert (str(status.status), status.reason) == ("FAIL_DISC", "because of 2")


def test_random_numbers_alone_are_no_fault() -> None:
    tree = traced(nn.Sequential(Draws(), nn.Linear(4, 4)), 4)
    for exporter, unchecked in (("fx", False), ("to_onnx", True)):
        made = Search(Options(exporter), FAILING, below=False)
        status = made.visit(tree)
        assert (str(status.status), status.unchecked) == ("OK", unchecked)
        assert [*made.verdicts] == [id(tree)]


def test_what_fails_by_itself_in_random_numbers_that_can_be_exported_is_no_fault(
    tree: ModelDiagnoseOutput, monkeypatch: pytest.MonkeyPatch
) -> None:
    unchecked = replace(status(StatusExportCode.OK), unchecked=True)
    fails = status(StatusExportCode.FAIL, "model.py:3")
    scripted(monkeypatch, {("", True): unchecked, ("head", False): fails})
    search = searched(tree)
    assert [*search.verdicts] == [id(tree)]
    wrong = replace(status(StatusExportCode.FAIL_DISC, "model.py:9"), step="DISC")
    scripted(
        monkeypatch,
        {("", True): unchecked, ("head", False): fails, ("b1", True): wrong,
         ("b1.bad", False): wrong},
    )  # fmt: skip
    search = searched(tree)
    assert [piece.path for piece in search.culprits(tree)] == ["b1.bad"]


def test_what_parts_of_parts_are_blamed_for_is_forgotten_with_them(
    tree: ModelDiagnoseOutput, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = status(StatusExportCode.FAIL, "whole.py:1")
    fails = status(StatusExportCode.FAIL, "model.py:3")
    scripted(monkeypatch, {("", True): whole, ("b1", True): fails, ("b1.bad", False): fails})
    search = searched(tree)
    assert search.verdicts[id(tree)].is_ok()
    assert [*search.verdicts] == [id(tree)]


@pytest.mark.parametrize("others", [CustomOpStrategy.NONE, FAILING])
def test_what_a_dictionary_replaces_always_is_no_fault_of_what_contains_it(
    others: CustomOpStrategy,
) -> None:
    tree = traced(nn.Sequential(nn.Linear(4, 4), nn.Sequential(Decides(), Decides())), 4)
    strategy = {"": others, "1": others, "1.0": CustomOpStrategy.ALWAYS}
    search = Search(Options(), strategy)
    search.visit(tree)
    codes = {piece.path: str(search.verdicts[id(piece)].status) for piece in tree.walk()}
    assert codes["1.0"] == "OK_CUSTOM"
    assert codes["1.1"] == "FAIL"  # named by nobody
    assert [piece.path for piece in search.culprits(tree)] == ["1.1"]
    code = "OK_CHILDC" if others is FAILING else "FAIL_CHILDC"
    assert (codes[""], codes["1"]) == (code, code)
    assert search.verdicts[id(tree)].blame == ("1.1",)


class Numpy(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.from_numpy(np.sin(x.detach().numpy()))


def test_what_another_way_of_exporting_takes_is_no_fault() -> None:
    # Tracing without Dynamo does not know numpy's functions, and with it does.
    model = nn.Sequential(nn.Linear(4, 4), nn.Sequential(Numpy()))
    root = traced(model, 4)
    search = searched(root)
    assert list(search.culprits(root)) == []
    assert search.verdicts[id(root)].is_ok()


def test_what_is_in_the_way_though_it_is_replaced_is_blamed_alone(
    tree: ModelDiagnoseOutput, monkeypatch: pytest.MonkeyPatch
) -> None:
    fails = status(StatusExportCode.FAIL)
    failing = {(path, once): fails for path in ("", "b1", "b1.bad") for once in (True, False)}
    scripted(monkeypatch, failing)
    search = searched(tree)
    assert [piece.path for piece in search.culprits(tree)] == ["b1.bad"]
    assert search.verdicts[id(tree)].blame == ("b1.bad",)
    own = status(StatusExportCode.FAIL, "model.py:3")
    scripted(monkeypatch, {**failing, ("", True): own, ("", False): own})
    search = searched(tree)
    assert [piece.path for piece in search.culprits(tree)] == ["b1.bad", ""]
