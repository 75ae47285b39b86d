"""Does every architecture of the zoo export, and equal PyTorch at every size?

Exports zoo models with our exporter and with torch.onnx.export as it stands, each in a process of
its own, in float32, and with ours in float16 and bfloat16. FILE keeps the rows: what it has is not
done again, so that a run may be interrupted, and several runs may add to one file. Writes
sweep.json and its section of RESULTS.md beside this file; exits 1 unless every float32 row of
ours is ok, none of ours is wrong in any dtype, and all of ours could be exported.

    python benchmarks/sweep.py [--no-write] [--no-run] [--jobs 1] FILE [MODEL ...]
"""

from __future__ import annotations

import argparse
import re
import statistics
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import torch
from record import machine, markdown, save

from torchferry.fleet.job import OUTCOMES, Job, Row
from torchferry.fleet.sweep import expand, read_rows, sweep
from torchferry.zoo.families import GROUPS

QUESTION = "Does every architecture of the zoo export, and equal PyTorch at every size?"
OURS, PEER = "to_onnx", "onnx_dynamo"
WAYS = ((OURS, None), (PEER, None), (OURS, "fp16"), (OURS, "bf16"))
SAID = {
    (OURS, None): "float32", (PEER, None): "torch.onnx, float32",
    (OURS, "fp16"): "float16", (OURS, "bf16"): "bfloat16",
}  # fmt: skip
# How an export ends that gave no model that onnxruntime runs.
NO_MODEL = ("refused", "runtime", "crash", "timeout", "memory")

Way = tuple[str, str | None]


def way_of(row: Row) -> Way:
    return row.job.exporter, row.job.dtype


def family_of(row: Row) -> str:
    return row.job.model.removeprefix("zoo:").partition("/")[0]


def kind_of(family: str) -> str:
    """The group of a family; the models to begin with are no group of the tables."""
    groups = (name for name, table in GROUPS.items() if family in {row.name for row in table})
    return next(groups, "to begin with")


def counted(rows: Iterable[Row]) -> str:
    """``12 ok, 1 wrong``."""
    counts = Counter(row.outcome for row in rows)
    return ", ".join(f"{counts[name]} {name}" for name in OUTCOMES if counts[name])


def ratio(rows: list[Row]) -> float | None:
    """Median of torch.onnx's CPU time over ours, of the models that both export."""
    times: dict[str, dict[Way, float]] = defaultdict(dict)
    for row in rows:
        if row.outcome not in NO_MODEL:
            times[row.job.model][way_of(row)] = row.cpu_seconds
    ours, peer = WAYS[:2]
    both = [
        found[peer] / found[ours] for found in times.values() if ours in found and peer in found
    ]
    return statistics.median(both) if both else None


def table(rows: list[Row], head: str, names: dict[str, list[Row]]) -> str:
    """A line a name, a column a way, and how much longer torch.onnx takes."""
    ways = [way for way in WAYS if any(way_of(row) == way for row in rows)]
    lines = []
    for name, own in names.items():
        times = ratio(own)
        cells = (counted(row for row in own if way_of(row) == way) for way in ways)
        lines.append((name, *cells, "" if times is None else f"{times:.1f}x"))
    columns = (head, *(SAID[way] for way in ways), "torch.onnx's CPU time")
    return markdown(columns, lines, right=(len(columns) - 1,))


def groups_of(rows: list[Row]) -> dict[str, list[Row]]:
    groups: dict[str, list[Row]] = {name: [] for name in (*GROUPS, "to begin with")}
    for row in rows:
        groups[kind_of(family_of(row))].append(row)
    return {name: own for name, own in groups.items() if own} | {"all": rows}


def families_of(rows: list[Row]) -> dict[str, list[Row]]:
    families: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        families[family_of(row)].append(row)
    return {name: families[name] for name in sorted(families)}


def others(rows: list[Row]) -> str:
    """What is not ok, and why."""
    lines = [
        (row.job.model.removeprefix("zoo:"), SAID[way_of(row)], row.outcome,
         " ".join(row.reason.replace("|", "/").split())[:140])
        for row in sorted(rows, key=lambda row: (WAYS.index(way_of(row)), row.job.model))
        if row.outcome != "ok"
    ]  # fmt: skip
    return markdown(("model", "how", "outcome", "why"), lines) if lines else "None."


def reached(rows: list[Row]) -> list[tuple[str, bool]]:
    """Every bar as a sentence, and whether it is kept."""
    ours = [row for row in rows if row.job.exporter == OURS]
    single = [row for row in ours if row.job.dtype is None]
    fine = [row for row in single if row.outcome == "ok"]
    fewest = min((row.sizes for row in fine), default=0)
    wrong = sum(row.outcome == "wrong" for row in ours)
    none = sum(row.outcome in NO_MODEL for row in ours)
    return [
        (f"ok in float32: {len(fine)} of {len(single)}", len(fine) == len(single)),
        (f"sets of sizes that were compared ≥ 3: {fewest}", fewest >= 3),
        (f"wrong = 0, in any dtype: {wrong}", not wrong),
        (f"not exported = 0, in any dtype: {none}", not none),
    ]


def told(rows: list[Row]) -> str:
    bars = "; ".join(f"{'pass' if kept else 'FAIL'}: {text}" for text, kept in reached(rows))
    ours = [row for row in rows if row.job.exporter == OURS]
    counts = Counter(way_of(row) for row in rows)
    tried = ", ".join(f"{counts[way]} in {SAID[way]}" for way in WAYS if counts[way])
    return (
        f"{QUESTION} `python benchmarks/sweep.py`: {tried}, of {len(families_of(rows))} models, "
        "each in its own process, compared with PyTorch at the sizes recorded, at larger ones and "
        "with each dimension 1, caches of length 0 too; CPU time without loading the libraries; "
        f"{machine()}, torch {torch.__version__}.\n\n{bars}.\n\n"
        f"{table(rows, 'kind', groups_of(rows))}\n\n"
        f"By family:\n\n{table(rows, 'family', families_of(rows))}\n\n"
        f"Ours that are not ok:\n\n{others(ours)}"
    )


def data_of(rows: list[Row]) -> dict[str, object]:
    """Outcomes by family and way; the rows that are not ok in full."""
    return {
        "question": QUESTION,
        "machine": machine(),
        "bars": [{"bar": text, "passed": kept} for text, kept in reached(rows)],
        "families": {
            name: {SAID[way]: counted(r for r in own if way_of(r) == way) for way in WAYS}
            for name, own in families_of(rows).items()
        },
        "others": [row.to_dict() for row in rows if row.outcome != "ok"],
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("file", type=Path, help="rows in JSON, one a line")
    parser.add_argument("models", nargs="*", help="as for torchferry sweep; the zoo if absent")
    parser.add_argument("--jobs", type=int, default=1, help="exports at a time")
    parser.add_argument("--note", default="", help="a sentence to close the section")
    parser.add_argument("--no-run", action="store_true", help="only tell what the file has")
    parser.add_argument("--no-write", action="store_true", help="only print the tables")
    options = parser.parse_args()
    if options.no_run:
        latest = {row.job: row for row in read_rows(options.file) if way_of(row) in WAYS}
        rows = list(latest.values())  # of a job that was done again, the last
    else:
        names = [name for given in options.models or ["zoo:*"] for name in expand(given)]
        todo = [Job(name, exporter, dtype) for exporter, dtype in WAYS for name in names]
        rows = sweep(todo, options.file, workers=options.jobs)
    # Where the libraries are installed is of this machine.
    rows = [replace(row, reason=re.sub(r"/\S*/site-packages/", "", row.reason)) for row in rows]
    text = f"{told(rows)}\n\n{options.note}".strip()
    print(text)
    if not options.no_write:
        save("sweep", data_of(rows), text)
    return 0 if all(kept for _, kept in reached(rows)) else 1


if __name__ == "__main__":
    sys.exit(main())
