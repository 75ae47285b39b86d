"""What torchferry has, and what it runs with; ``torchferry inspect`` shows it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import asdict

from torchferry.exporter.environment import environment
from torchferry.report.model import Cell, Report, Section, Source, Table, Tone
from torchferry.report.quantity import counted

__all__ = ["INVENTORIES", "environment", "operators", "patches", "sources", "zoo"]

_TONES: dict[str, Tone] = {"ours": "good", "none": "bad", "needed": "good", "hit": "good"}


def operators() -> Report:
    """Every ATen overload, and who converts it; also those that this torch does not have."""
    import torch

    from torchferry.converter.coverage import coverage

    rows = coverage()
    counts = Counter(row.by for row in rows)
    said = ", ".join(f"{counts[by]} {by}" for by in ("ours", "decomposed", "borrowed", "none"))
    lacking = f"not in torch {torch.__version__}"
    said += f", {counts['absent']} {lacking}" if counts["absent"] else ""
    table = Table(
        ("operator", "by", "lowering", "complex"),
        tuple(
            (row.operator, Cell(lacking if row.by == "absent" else row.by, _TONES.get(row.by)),
             row.place, "yes" if row.complex else "")
            for row in rows
        ),
    )  # fmt: skip
    return Report(
        title="inspect ops",
        ok=True,
        verdict=f"{len(rows) - counts['absent']} functional ATen overloads: {said}",
        sections=(Section("Operators", (table,)),),
        next_steps=("lower one yourself: @torchferry.lowers(torch.ops.NAMESPACE.NAME.OVERLOAD)",),
        data={"kind": "ops", "operators": [asdict(row) for row in rows]},
    )


def patches() -> Report:
    """Every patch of torch and transformers, whether it is needed here, and what it changes."""
    from torchferry.capturer.patching.patching import patch_rows

    rows = patch_rows(load=True)
    needed = sum(row.state in ("needed", "hit") for row in rows)
    table = Table(
        ("patch", "state", "why", "upstream"),
        tuple((r.subject, Cell(r.state, _TONES.get(r.state)), r.why, r.link) for r in rows),
    )
    diffs = tuple(Source(row.subject, row.diff) for row in rows if row.diff)
    return Report(
        title="inspect patches",
        ok=True,
        verdict=f"{len(rows)} patches, {needed} of them needed with what is installed",
        sections=(
            Section("Patches", (table,)),
            Section("What they change", diffs, brief=False),
        ),
        data={"kind": "patches", "patches": [asdict(row) for row in rows]},
    )


def zoo() -> Report:
    """Every family of models that ``zoo:NAME`` builds."""
    from torchferry.zoo.catalogue import rows

    found = rows()
    table = Table(
        ("family", "kind", "class", "tasks", "states", "parameters", "transformers"),
        tuple(
            (row.family, row.group, row.model_class, ", ".join(row.tasks),
             ", ".join(row.states), row.parameters, row.transformers or "-")
            for row in found
        ),
    )  # fmt: skip
    return Report(
        title="inspect zoo",
        ok=True,
        verdict=f"{counted(len(found), 'model')} by name, with random weights",
        sections=(Section("Families", (table,)),),
        next_steps=("export one: torchferry export zoo:llama -o out",),
        data={"kind": "zoo", "families": [asdict(row) for row in found]},
    )


def sources() -> Report:
    """Every form that MODEL may have."""
    from torchferry.sources.kinds import KINDS

    table = Table(("MODEL", "what is exported"), tuple((one.form, one.about) for one in KINDS))
    return Report(
        title="inspect sources",
        ok=True,
        verdict=f"MODEL has {counted(len(KINDS), 'form')}",
        sections=(Section("Forms", (table,)),),
        next_steps=("export one: torchferry export torchvision:resnet18 -o out",),
        data={"kind": "sources", "forms": {one.form: one.about for one in KINDS}},
    )


INVENTORIES: dict[str, Callable[[], Report]] = {
    "environment": environment,
    "ops": operators,
    "patches": patches,
    "sources": sources,
    "zoo": zoo,
}
