"""Do models of other libraries export, and equal PyTorch at sizes that were not recorded?

Exports the models of field_models.py with our exporter and with torch.onnx.export as it stands,
each in a process of its own, in the environment that ``make field`` makes. FILE keeps the rows:
what it has is not done again. Writes field.json and its section of RESULTS.md; exits 1 if a model
of ours is wrong, fewer than 95 % are ok, or torch.onnx is right where ours is not.

    python benchmarks/field.py [--only PATTERN] [--timeout 600] [--no-run] [--note TEXT] FILE
"""

from __future__ import annotations

import argparse
import fnmatch
import re
import statistics
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path

import torch
from field_models import FACTORIES
from record import machine, markdown, save

from torchferry.fleet.job import OUTCOMES, Job, Row
from torchferry.fleet.sweep import read_rows, sweep

QUESTION = "Do models of other libraries export, and equal PyTorch at sizes not recorded?"
OURS, PEER = "to_onnx", "onnx_dynamo"
BAR = 0.95  # of the models that are ok
MODELS = Path(__file__).with_name("field_models.py")


def name_of(row: Row) -> str:
    return row.job.model.rpartition(":")[2]


def counted(rows: list[Row], exporter: str) -> str:
    counts = Counter(row.outcome for row in rows if row.job.exporter == exporter)
    return ", ".join(f"{counts[name]} {name}" for name in OUTCOMES if counts[name])


def seconds(rows: list[Row], exporter: str) -> str:
    times = [row.cpu_seconds for row in rows if row.job.exporter == exporter]
    return f"{statistics.fsum(times):.0f}" if times else ""


def families(rows: list[Row]) -> str:
    names = dict.fromkeys(name_of(row).partition("/")[0] for row in rows)
    groups = {name: [r for r in rows if name_of(r).startswith(f"{name}/")] for name in names}
    lines = [
        (name, counted(own, OURS), counted(own, PEER), seconds(own, OURS), seconds(own, PEER))
        for name, own in {**groups, "all": rows}.items()
    ]
    head = ("family", "ours", "torch.onnx", "CPU seconds", "torch.onnx")
    return markdown(head, lines, right=(3, 4))


def others(rows: list[Row]) -> str:
    """Ours that are not ok, why, and how torch.onnx ends there."""
    peers = {name_of(row): row.outcome for row in rows if row.job.exporter == PEER}
    lines = [
        (name_of(row), row.outcome, peers.get(name_of(row), ""), reason_of(row))
        for row in rows
        if row.job.exporter == OURS and row.outcome != "ok"
    ]
    return markdown(("model", "ours", "torch.onnx", "why"), lines) if lines else "None."


def reason_of(row: Row) -> str:
    return row.reason.replace("|", "/")[:160]


def reached(rows: list[Row]) -> list[tuple[str, bool]]:
    """Every bar as a sentence, and whether it is kept."""
    ours = [row for row in rows if row.job.exporter == OURS]
    fine = {name_of(row) for row in ours if row.outcome == "ok"}
    wrong = sum(row.outcome == "wrong" for row in ours)
    beside = [row for row in rows if row.job.exporter == PEER]
    behind = sorted({name_of(row) for row in beside if row.outcome == "ok"} - fine)
    return [
        (f"ok ≥ {BAR:.0%}: {len(fine)} of {len(ours)}", len(fine) >= BAR * len(ours)),
        (f"wrong = 0: {wrong}", not wrong),
        (
            f"torch.onnx ahead on none of the {len(beside)} it ran: {', '.join(behind) or 'none'}",
            not behind,
        ),
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("file", type=Path, help="rows in JSON, one a line")
    parser.add_argument("--only", default="*", metavar="PATTERN", help="models, as 'timm/*'")
    parser.add_argument("--ours", action="store_true", help="leave torch.onnx out")
    parser.add_argument("--timeout", type=float, default=600.0, help="seconds for each export")
    parser.add_argument("--no-run", action="store_true", help="only tell what the file has")
    parser.add_argument("--no-write", action="store_true", help="only print the tables")
    parser.add_argument(
        "--note", default="", metavar="TEXT", help="of what the rows are, if mixed"
    )
    options = parser.parse_args()
    ways = (OURS,) if options.ours else (OURS, PEER)
    names = fnmatch.filter(FACTORIES, options.only)
    jobs = [Job(f"{MODELS}:{name}", way) for name in names for way in ways]
    if options.no_run:
        known = {(name_of(row), row.job.exporter): row for row in read_rows(options.file)}
        rows = [known[n, way] for n in names for way in ways if (n, way) in known]
    else:
        rows = sweep(jobs, options.file, timeout=options.timeout, done=tell)
    # Where the libraries are installed is of this machine.
    rows = [replace(row, reason=re.sub(r"/\S*/site-packages/", "", row.reason)) for row in rows]
    bars = reached(rows)
    told = "; ".join(f"{'pass' if kept else 'FAIL'}: {text}" for text, kept in bars)
    text = (
        f"{QUESTION} `python benchmarks/field.py`: {len({name_of(row) for row in rows})} of the "
        f"{len(FACTORIES)} models of field_models.py, "
        "each in its own process, two recorded sets, compared at other sizes, each dimension 1 "
        f"too; {machine()}, torch {torch.__version__}. "
        f"{options.note}\n\n{told}.\n\n{families(rows)}\n\n"
        f"Ours that are not ok:\n\n{others(rows)}"
    )
    print(text)
    if not options.no_write:
        data = {"question": QUESTION, "machine": machine(), "bars": bars}
        brief = [{**row.to_dict(), "job": [name_of(row), row.job.exporter]} for row in rows]
        save("field", {**data, "rows": brief}, text)
    return 0 if all(kept for _, kept in bars) else 1


def tell(row: Row) -> None:
    way = "ours" if row.job.exporter == OURS else "torch.onnx"
    said = f"{name_of(row)} {way}: {row.outcome} {row.cpu_seconds:.0f} s {row.reason[:300]}"
    print(said, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
