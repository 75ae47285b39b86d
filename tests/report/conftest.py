"""Reports to render: one as the export command makes them, one hostile in every text field."""

from __future__ import annotations

import pytest

from torchferry.report import Bars, Cell, Facts, Report, Section, Source, Table

SCRIPT = "<script>console.error('x')</script>&\"'"
SIZES = ("batch 2, seq 3", "batch 3, seq 7", "batch 1, seq 1")


def export_report(ok: bool) -> Report:
    verdict = Cell("equal", "good") if ok else Cell("differs", "bad")
    rows = tuple(
        (output, size, 3.6e-07 if ok else Cell("0.0213", "bad"), verdict)
        for size in SIZES
        for output in ("logits", "present.0.key")
    )
    dims = Table(
        ("dimension", "status", "verified at", "why"),
        (("batch_size", Cell("verified", "good"), "1, 2, 3", "varies in the recorded calls"),),
        title="Dynamic dimensions",
    )
    steps = (("capture", 4.871), ("convert", 6.204), ("com.microsoft.SkipLayerNormalization", 0.0))
    return Report(
        title="export zoo:tiny-llm",
        ok=ok,
        verdict="the outputs are equal at 3 sizes" if ok else "logits differs at 3 sizes",
        sections=(
            Section("Dimensions", (dims,)),
            Section("Discrepancies", (Table(("output", "sizes", "max abs", "verdict"), rows),)),
            Section("Time", (Bars("Time per step", "s", steps, note="wall clock"),)),
            Section("Capture", (Source("Shapes", "{0: DYNAMIC}\n  indented"),)),
            Section("Environment", (Facts((("torch", "2.13.0"),)),), brief=False),
        ),
        problems=() if ok else ("output logits differs; run `torchferry compare out`",),
        next_steps=("run it: `python run.py`",),
        data={"worst": 3.6e-07, "sizes": [1, 2, 3]},
    )


@pytest.fixture
def good() -> Report:
    return export_report(ok=True)


@pytest.fixture
def failed() -> Report:
    return export_report(ok=False)


@pytest.fixture
def hostile() -> Report:
    """The same piece of script wherever a report takes text."""
    blocks = (
        Facts(((SCRIPT, SCRIPT), (SCRIPT, Cell(SCRIPT, "bad"))), title=SCRIPT),
        Table((SCRIPT, "n"), ((SCRIPT, 1), (Cell(SCRIPT, "good"), 2)), title=SCRIPT, note=SCRIPT),
        Bars(SCRIPT, SCRIPT, ((SCRIPT, 1.0),), note=SCRIPT),
        Source(SCRIPT, SCRIPT),
    )
    return Report(
        title=SCRIPT,
        ok=False,
        verdict=SCRIPT,
        sections=(Section(SCRIPT, blocks), Section(SCRIPT, ())),
        problems=(SCRIPT, f"`{SCRIPT}`"),
        next_steps=(SCRIPT,),
        data={SCRIPT: SCRIPT},
    )
