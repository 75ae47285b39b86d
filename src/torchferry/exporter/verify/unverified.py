"""The report of an export that was not verified because the user said so."""

from __future__ import annotations

from dataclasses import replace

from torchferry.report.model import Cell, Facts, Report, Section

__all__ = ["unverified"]

_COMPARING = {"Outputs against PyTorch", "Sizes tried", "Every output at every size"}
_NOT_COMPARED = "nothing could be compared"


def unverified(report: Report, title: str) -> Report:
    """Say of an export, first and in plain words, that nothing was run or compared.

    It is ok when nothing else is wrong with it, since that is what was asked for.

    Args:
        report: of an export without checks.
        title: what it calls the model.
    """
    problems = tuple(p for p in report.problems if not p.startswith(_NOT_COMPARED))
    told = Section(
        "Verification",
        (Facts((("compared with PyTorch", Cell("no: not verified, as asked", "warn")),)),),
    )
    sections = [section for section in report.sections if section.title not in _COMPARING]
    found = f"{len(problems)} problem{'s' * (len(problems) != 1)}" if problems else "exported"
    return replace(
        report,
        ok=not problems,
        verdict=f"{title}: {found}, NOT VERIFIED: neither run nor compared with PyTorch",
        problems=problems,
        sections=(told, *sections),
        data={**report.data, "verified": False},
    )
