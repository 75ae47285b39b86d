"""The tables and pictures of an export's report."""

from __future__ import annotations

import platform
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from torchferry.exporter.steps import bytes_text, counted
from torchferry.exporter.tell.findings import Findings
from torchferry.exporter.verify.dimension import DimensionCheck
from torchferry.exporter.verify.verify import Check, Compared
from torchferry.graph.packed import Packed
from torchferry.judge import Kind
from torchferry.judge.rounding import ROUNDING
from torchferry.observer import Argument
from torchferry.report.model import Bars, Cell, Facts, Table, Tone
from torchferry.report.quantity import packed_text, shortened
from torchferry.seams.versions import installed

__all__ = [
    "NO_DIMENSION",
    "argument_table",
    "dimension_table",
    "environment",
    "model_blocks",
    "output_table",
    "packed_facts",
    "sizes_table",
    "sizes_text",
    "step_bars",
    "step_table",
    "whole_table",
]

Row = tuple[Cell | str | int | float, ...]

_PACKAGES = ("torchferry", "torch", "transformers", "onnx", "onnx-ir", "onnxscript", "onnxruntime")
_TONES: dict[Kind, Tone] = {
    "equal": "good", "rounding": "good", "random": "warn", "incomparable": "warn",
    "differs": "bad", "failed": "bad",
}  # fmt: skip
NO_DIMENSION = "no dimension is dynamic: the model takes the sizes seen only"
_MANY = 12  # outputs shown one by one on a terminal


def sizes_text(check: Check) -> str:
    """``batch_size=1, sequence_length=3``."""
    return ", ".join(f"{name}={size}" for name, size in check.sizes.items()) or "the size seen"


def dimension_table(dimensions: list[DimensionCheck]) -> Table:
    """At which sizes each dynamic dimension was verified; without columns that are all blank."""
    tones: dict[str, Tone] = {"verified": "good", "verified where": "good", "unverified": "warn"}
    columns: dict[str, list[Cell | str]] = {
        "dimension": [d.name for d in dimensions],
        "verdict": [Cell(_status(d), tones.get(d.status, "bad")) for d in dimensions],
        "sizes that agree": [", ".join(map(str, d.agreed)) for d in dimensions],
        "sizes that do not": [", ".join(map(str, d.failed)) for d in dimensions],
        "where": [", ".join(d.places) for d in dimensions],
        "note": [d.note for d in dimensions],
    }
    told = {name: cells for name, cells in columns.items() if any(cells) or not dimensions}
    return Table(
        tuple(told),
        tuple(zip(*told.values(), strict=True)),
        note="" if dimensions else f"{NO_DIMENSION.capitalize()}.",
    )


def _status(dimension: DimensionCheck) -> str:
    limits = " and ".join(map(shortened, dimension.where[:2]))
    more = f" and {len(dimension.where) - 2} more" if len(dimension.where) > 2 else ""
    return f"{dimension.status} {limits}{more}" if limits else dimension.status


def output_table(found: Findings) -> Table:
    """One row an output: its worst difference over all sizes."""
    columns: dict[str, list[tuple[Check, Compared]]] = {}
    for check in (check for check in found.checks if found.limits.meets(check.sizes)):
        for output in check.outputs:
            columns.setdefault(output.name, []).append((check, output))
    rows = []
    for name, pairs in columns.items():
        check, worst = max(pairs, key=lambda pair: _badness(pair[1]))
        difference = worst.difference
        rows.append(
            (name, len(pairs), difference.abs, difference.rel, sizes_text(check), _verdict(worst))
        )
    rows.sort(key=lambda row: (row[5].tone == "good", -row[2]))
    shown = max(_MANY, sum(row[5].tone != "good" for row in rows))
    atol, rtol = found.tolerance.atol, found.tolerance.rtol
    note = (
        f"equal: max abs ≤ {atol:g} min(1, s) + {rtol:g} s, where s is the largest value PyTorch "
        "gives there, 0.01 at least."
    )
    if any(output.kind == "rounding" for check in found.checks for output in check.outputs):
        note += (
            f" rounding: up to {ROUNDING} times that where it is as near to float64 as PyTorch "
            "is, and more where PyTorch itself moves as far when it rounds otherwise."
        )
    if len(rows) > shown:
        more = counted(len(rows) - shown, "more output")
        note = f"… and {more}, all equal, none worse. {note}"
    return Table(
        ("output", "sets", "max abs", "max rel", "worst at", "verdict"),
        tuple((n, s, _figure(a), _figure(r), at, v) for n, s, a, r, at, v in rows[:shown]),
        note=note,
    )


def sizes_table(found: Findings) -> Table:
    """One row a set of sizes: the worst of its outputs."""
    names = found.seen.dynamic_names
    rows = []
    for check in found.checks:
        broken = [one for one in found.limits.kept if one.broken_by(check.sizes)]
        if check.refused is not None and any(one.of_empty for one in broken):
            continue  # that a model takes nothing empty is nothing to read
        sizes = [check.sizes.get(name, "") for name in names]
        origin = "made" if check.made else "recorded"
        if broken:
            origin += f", not {shortened(str(broken[0]))}"
        if check.outputs:
            worst = max(check.outputs, key=_badness)
            rows.append(
                (*sizes, origin, worst.name, _figure(worst.difference.abs), _verdict(worst))
            )
        elif check.untried is not None:
            rows.append((*sizes, origin, "", "", Cell(f"not tried: {check.untried}", "warn")))
        elif check.refused is not None:
            said = "" if check.refused.startswith("PyTorch ") else "PyTorch refuses: "
            rows.append((*sizes, origin, "", "", Cell(f"{said}{check.refused}", "muted")))
        else:
            rows.append((*sizes, origin, "", "", Cell(check.error or "no output", "bad")))
    return Table((*names, "inputs", "worst output", "max abs", "verdict"), tuple(rows))


def whole_table(found: Findings) -> Table:
    """Every output at every set of sizes."""
    rows: list[Row] = [
        (
            sizes_text(check),
            output.name,
            _figure(output.difference.abs),
            _figure(output.difference.rel),
            _verdict(output),
        )
        for check in found.checks
        for output in check.outputs
    ]
    return Table(("sizes", "output", "max abs", "max rel", "verdict"), tuple(rows))


def _badness(output: Compared) -> tuple[int, float]:
    order = ("random", "incomparable", "equal", "rounding", "differs", "failed")
    return order.index(output.kind), output.difference.abs


def _verdict(output: Compared) -> Cell:
    verdict = output.verdict
    words = [verdict.difference.reason or verdict.kind, verdict.evidence]
    return Cell("; ".join(word for word in words if word), _TONES[verdict.kind])


def argument_table(arguments: Iterable[Argument]) -> Table:
    """Every axis of every argument, and why it is dynamic or static.

    Arguments that differ in nothing but their name (the layers of a cache) share their rows.
    """
    alike: dict[tuple[Row, ...], list[str]] = {}
    for argument in arguments:
        alike.setdefault(tuple(_sizes_told(argument)), []).append(argument.name)
    rows = tuple((_first_of(names), *row) for told, names in alike.items() for row in told)
    return Table(("argument", "dtype", "axis", "size", "why"), rows)


def _sizes_told(argument: Argument) -> Iterator[Row]:
    if argument.integer is not None:
        yield "integer", "", str(argument.integer.size), argument.integer.reason
    elif argument.dtype is None:
        yield "constant", "", "", repr(argument.value)
    else:
        dtype = str(argument.dtype).removeprefix("torch.")
        for axis in argument.axes:
            yield dtype, axis.index, str(axis.size), axis.reason
        if not argument.axes:
            yield dtype, "", "", "no dimension"


def _first_of(names: list[str]) -> str:
    if len(names) == 1:
        return names[0]
    return f"{names[0]} and {len(names) - 1} more, to {names[-1]}"


def step_table(found: Findings) -> Table:
    """Time, memory and result of each step."""
    return Table(
        ("step", "seconds", "peak memory MiB", "made"),
        tuple(
            (s.name, f"{s.seconds:.2f}", round(s.peak_bytes / 2**20), s.size)
            for s in found.steps.done
        ),
    )


def packed_facts(packed: Sequence[Packed]) -> tuple[Facts, ...]:
    """What weights took fewer bits than floats; nothing if none did."""
    texts = [packed_text(one.count, one.kind, one.size, one.plain) for one in packed]
    return (Facts((("packed", "; ".join(texts)),)),) if texts else ()


def step_bars(found: Findings) -> tuple[Bars, Bars]:
    """Time and memory of each step as pictures."""
    steps = found.steps.done
    return (
        Bars("Time", "s", tuple((s.name, s.seconds) for s in steps)),
        Bars("Peak resident memory", "MiB", tuple((s.name, s.peak_bytes / 2**20) for s in steps)),
    )


def model_blocks(found: Findings) -> tuple[Facts | Bars, ...]:
    """Size, operator sets and operator histogram of the model."""
    model = found.model
    opsets = ", ".join(f"{d or 'ai.onnx'} {v}" for d, v in model.opset_imports.items())
    counts = Counter(
        f"{node.domain}.{node.op_type}" if node.domain else node.op_type
        for node in model.graph.all_nodes()
    )
    pairs = (
        ("nodes", str(len(model.graph))),
        ("weights", counted(len(model.graph.initializers), "tensor")),
        ("size on disk", bytes_text(found.bytes_written)),
        ("target", found.target),
        ("operator sets", opsets),
        ("IR version", str(model.ir_version)),
    )
    bars = Bars("Operators", "nodes", tuple((n, float(c)) for n, c in counts.most_common(25)))
    return Facts(pairs), bars


def environment() -> Facts:
    """Versions of everything that took part."""
    pairs = (("Python", platform.python_version()), ("system", platform.platform()))
    return Facts((*pairs, *((package, installed(package)) for package in _PACKAGES)))


def _figure(value: float) -> str:
    return f"{value:.2g}"
