from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from torchferry.diagnoser import diagnose
from torchferry.errors import UsageError

pytestmark = pytest.mark.usefixtures("untouched")
Inputs = list[tuple[tuple[torch.Tensor, ...], dict[str, torch.Tensor]]]


class Decides(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x if x.sum() > 0 else -x


def test_the_culprit_is_named_once_and_the_report_is_the_known_one(
    model: nn.Module, inputs: Inputs, tmp_path: Path
) -> None:
    begun: list[str] = []
    found = diagnose(
        model,
        inputs,
        reproduce=tmp_path,
        export_rest=tmp_path / "rest.onnx",
        progress=begun.append,
    )
    assert not found.ok
    (culprit,) = found.culprits
    assert (culprit.places, culprit.title) == (("b1.bad",), "Bad")
    assert culprit.refused == ""
    assert culprit.script == tmp_path / "Model_b1_bad.py"
    text = str(culprit)
    assert text.startswith("b1.bad (Bad): Could not guard on data-dependent expression")
    assert "`if x.sum() > 0:`. A value of a tensor decides" in text
    assert str(found).splitlines()[:4] == [
        "__main__    Model    OK_CHILDC -- ExportedProgram",
        "..b1        Block    OK_CHILDC -- ExportedProgram",
        "....good    Good     OK -- ExportedProgram",
        "......lin   Linear   <OK-2i-0>",
    ]
    assert [row[0] for row in found.rows][-1] == "..head"
    assert found.rest == tmp_path / "rest.onnx"
    x, mask = torch.randn(4, 8), torch.rand(4, 1)
    torch.testing.assert_close(found.open_rest()(x, mask=mask), model(x, mask=mask).detach())
    assert begun == [
        "run the model", "export piece by piece", "write reproductions", "export the rest",
    ]  # fmt: skip


def test_modules_of_one_class_that_fail_in_one_way_are_one_culprit() -> None:
    model = nn.Sequential(Decides(), nn.Linear(4, 4), Decides())
    found = diagnose(model, [(torch.rand(n, 4),) for n in (2, 5)])
    (culprit,) = found.culprits
    assert culprit.places == ("0", "2")
    assert culprit.where == "0, 2 (Decides)"


def test_a_healthy_model_has_none(tmp_path: Path) -> None:
    model = nn.Linear(4, 4)
    found = diagnose(model, [(torch.rand(n, 4),) for n in (2, 5)], reproduce=tmp_path)
    assert found.ok
    assert list(tmp_path.iterdir()) == []


def test_what_cannot_be_written_is_said_and_the_rest_is_kept(tmp_path: Path) -> None:
    found = diagnose(
        Decides(), [(torch.rand(n, 4),) for n in (2, 5)], export_rest=tmp_path / "rest.onnx"
    )
    assert [culprit.places for culprit in found.culprits] == [("",)]
    assert found.rest is None
    assert "nothing would be left" in found.rest_refused
    with pytest.raises(UsageError, match="nothing would be left"):
        found.open_rest()
    assert found.culprits[0].where == "the model itself (Decides)"


@pytest.mark.parametrize(
    "options", [{"exporter": "onnx"}, {"atol": -1.0}, {"exporter_kwargs": {"no_such": 1}}]
)
def test_options_are_checked_before_anything_runs(options: dict[str, Any]) -> None:
    with pytest.raises(UsageError):
        diagnose(Decides(), [], **options)


def test_places_are_checked_before_anything_runs(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("kept", "utf-8")
    for options, words in (
        ({"reproduce": file}, "give a folder"),
        ({"reproduce": file / "below"}, "give a folder"),
        ({"export_rest": tmp_path / "no" / "rest.onnx"}, "no folder to write to"),
        ({"export_rest": tmp_path}, "ends in .onnx"),
        ({"export_rest": tmp_path / "rest.txt"}, "ends in .onnx"),
    ):
        with pytest.raises(UsageError, match=words):
            diagnose(Decides(), [], **options)
    assert file.read_text("utf-8") == "kept"
    assert not (tmp_path / "no").exists()


class Wrong(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * 2 if torch.compiler.is_exporting() else x * 3


def test_a_rest_that_differs_is_told_where_the_exporter_asked_for_does_not(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Linear(4, 4), Wrong())
    sets = [(torch.rand(n, 4),) for n in (2, 5)]
    found = diagnose(model, sets, exporter="torch_script", export_rest=tmp_path / "rest.onnx")
    assert found.ok
    assert "gives other numbers than PyTorch" in found.rest_note
    assert str(found).endswith(f"{found.rest}: {found.rest_note}")


class Counts(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.calls = 0
        self.register_buffer("total", torch.zeros(()))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        self.total += 1
        return x * self.total


def test_buffers_and_attributes_are_as_before(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Linear(4, 4), Counts(), Decides())
    sets = [(torch.rand(n, 4),) for n in (2, 5)]
    found = diagnose(model, sets, exporter="to_onnx", export_rest=tmp_path / "rest.onnx")
    found.open_rest()
    assert (model[1].calls, model[1].total.item()) == (0, 0)


@dataclasses.dataclass
class Pair:
    left: torch.Tensor
    count: int


class Makes(nn.Module):
    def forward(self, x: torch.Tensor) -> Pair:
        return Pair(x + 1, 4)


class Takes(nn.Module):
    def forward(self, pair: Pair) -> torch.Tensor:
        return pair.left * pair.count


def test_modules_may_hand_one_another_dataclasses() -> None:
    model = nn.Sequential(Makes(), Takes(), Decides())
    sets = [(torch.rand(n, 4),) for n in (2, 5)]
    found = diagnose(model, sets, exporter="torch_script")
    assert [culprit.places for culprit in found.culprits] == [("2",)]


class Handle:
    """What PyTorch cannot look into."""

    def __init__(self, value: torch.Tensor) -> None:
        self.value = value


class Wraps(nn.Module):
    def forward(self, x: torch.Tensor) -> Handle:
        return Handle(x + 1)


class Unwraps(nn.Module):
    def forward(self, handle: Handle) -> torch.Tensor:
        return handle.value * 2


def test_an_argument_that_nobody_knows_is_a_verdict() -> None:
    model = nn.Sequential(Wraps(), Unwraps(), Decides())
    found = diagnose(model, [(torch.rand(n, 4),) for n in (2, 5)])
    assert ("2",) in [culprit.places for culprit in found.culprits]


class Masked(nn.Module):
    def forward(self, x: torch.Tensor, mask: torch.Tensor | None) -> torch.Tensor:
        x.untyped_storage().data_ptr()  # what no tracer follows
        return x if mask is None else x * mask


class Masks(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.part = Masked()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        # As transformers: a mask that hides nothing is left out, unless a graph is made.
        return self.part(x, x.abs() if torch.compiler.is_exporting() else None)


@pytest.mark.parametrize("exporter", ["fx", "to_onnx"])
def test_a_caller_that_passes_other_things_while_it_is_traced_is_no_culprit(exporter: str) -> None:
    inputs = [(torch.rand(n, 4),) for n in (2, 5)]
    found = diagnose(nn.Sequential(Masks(), nn.ReLU()), inputs, exporter=exporter)
    (culprit,) = found.culprits
    assert culprit.places == ("0.part",)
    assert culprit.status.line is not None
    assert "what no tracer follows" in culprit.status.line
    status = found.tree.children[0].exporter_status
    assert status is not None
    assert status.blame == ("0.part",)
    assert "in a way that was not recorded" in status.notes[-1]


class Layer(nn.Module):
    def forward(self, x: torch.Tensor, number: int) -> torch.Tensor:
        return x if number == 2 and x.sum() > 0 else x * 2


class Layers(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = Layer()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for number in range(3):
            x = self.layer(x, number)
        return x


@pytest.mark.slow
def test_a_piece_that_fails_in_some_of_its_calls_is_reproduced_with_these(tmp_path: Path) -> None:
    found = diagnose(Layers(), [(torch.rand(n, 4),) for n in (2, 5)], reproduce=tmp_path)
    (culprit,) = found.culprits
    assert culprit.places == ("layer",)
    assert (culprit.refused, culprit.script) == ("", tmp_path / "Layers_layer.py")


def test_random_numbers_go_on_as_they_would_have() -> None:
    before = torch.get_rng_state()
    found = diagnose(
        nn.Sequential(Decides(), nn.Identity()), [(torch.ones(n, 4),) for n in (2, 5)]
    )
    assert not found.ok
    assert torch.equal(before, torch.get_rng_state())
