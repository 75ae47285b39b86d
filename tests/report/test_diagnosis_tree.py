from __future__ import annotations

import torch
from torch import nn

from torchferry.diagnoser import StatusExport, StatusExportCode, diagnose
from torchferry.report.diagnosis_tree import module_tree, tone_of


class Decides(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x if x.sum() > 0 else -x


class Unused(nn.Sequential):
    """The second part is never called."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self[2](self[0](x))


def test_every_module_has_its_verdict_and_what_it_was_given() -> None:
    model = Unused(nn.Linear(4, 4), nn.Linear(4, 4), Decides())
    block = module_tree(diagnose(model, [(torch.ones(n, 4),) for n in (2, 5)]))
    assert [(i.path, i.kind, i.tone) for i in block.items] == [
        ("", "Unused", "warn"), ("0", "Linear", "good"), ("1", "Linear", "muted"),
        ("2", "Decides", "bad"),
    ]  # fmt: skip
    assert block.first == 3
    facts = dict(block.items[3].facts)
    assert "if x.sum() > 0" in facts["line"]
    assert facts["what to do"].startswith("a value of a tensor decides")
    assert (facts["verdict"], facts["step"]) == ("FAIL", "EXPORT")
    assert facts["calls"] == "2"
    assert facts["is given"] == "((T1s5x4,),{})"
    assert dict(block.items[0].facts)["because of"] == "2"
    assert dict(block.items[1].facts)["returns"] == "T1s5x4"
    assert "never called" in dict(block.items[2].facts)["note"]
    assert "`T1s2x5` is a tensor" in block.note


class Many(nn.Module):
    def forward(self, named: dict[str, torch.Tensor]) -> torch.Tensor:
        return sum(named.values())


def test_what_is_too_long_to_be_shown_ends_in_dots() -> None:
    calls = [({f"a_rather_long_name_{k}": torch.ones(n) for k in range(15)},) for n in (2, 3)]
    given = dict(module_tree(diagnose(Many(), calls)).items[0].facts)["is given"]
    assert 300 < len(given) < 310
    assert given.endswith(" …")


def test_tones() -> None:
    code = StatusExportCode
    assert tone_of(None) == tone_of(StatusExport(code.NOINPUT)) == "muted"
    assert tone_of(StatusExport(code.OK)) == "good"
    assert tone_of(StatusExport(code.FAIL)) == "bad"
    assert tone_of(StatusExport(code.FAIL, blame=("a",))) == "warn"
    assert tone_of(StatusExport(code.OK_CHILDC, blame=("a",))) == "warn"
