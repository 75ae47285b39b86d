from __future__ import annotations

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
    assert culprit.where == "0 (Decides) and 1 more"


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
