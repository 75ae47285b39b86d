"""What opinfo.py found, as text: counts by dtype and family, and why the others do not pass."""

from __future__ import annotations

import re
from collections import defaultdict
from typing import Any

import torch
from record import machine, markdown

__all__ = ["told"]

Row = dict[str, Any]

OURS, BORROWED, PEER = "ours", "with onnxscript's", "torch.onnx"
BAR = 560  # operators that pass in float32, with onnxscript's
FAMILIES = ("nn.functional", "linalg", "fft", "special", "masked", "signal", "_refs", "sparse")
PASSED = ("pass", "random")
# The first that fits an outcome and its reason; what a reader wants to know of what does not pass.
KINDS = (
    ("wrong", "", "WRONG"),
    ("crash", "", "crash"),
    ("eager", "", "eager itself refuses the sample"),
    ("(capture|refused)", "data.dependent|depends on (the )?(data|values)|unbacked|u0",
     "depends on the data"),
    ("capture", "", "torch.export refuses"),
    ("refused", "MissingLowering", "no ONNX equivalent"),
    ("refused", "training|random|dropout", "random or learning in training mode"),
    ("refused", "kernel|onnxruntime", "onnxruntime lacks the kernel"),
    ("load", "", "onnxruntime lacks the kernel"),
    ("refused", "", "refused by name"),
    ("run", "", "fails in onnxruntime"),
)  # fmt: skip


def told(results: dict[str, list[Row]], samples: int) -> tuple[str, bool]:
    """The section, and whether every bar is reached.

    Args:
        results: rows by dtype.
        samples: of each operator.
    """
    head = ("dtype", "who", "pass", "random, same distribution", "refused or failed", "wrong")
    lines = []
    for dtype, rows in results.items():
        for column in (OURS, BORROWED, PEER):
            counts = [_count(rows, column, "pass"), _count(rows, column, "random")]
            wrong, none = _count(rows, column, "wrong"), _count(rows, column, "no_sample")
            others = len(rows) - sum(counts) - wrong - none
            lines.append((dtype, column, *map(str, (*counts, others, wrong))))
    families, ahead = _families(results)
    wrong = sum(_count(rows, BORROWED, "wrong") for rows in results.values())
    single = results.get("float32", [])
    passed = sum(row[BORROWED]["outcome"] in PASSED for row in single)
    text = (
        "Which of PyTorch's operators convert, and with the right values? `python benchmarks/"
        f"opinfo.py`: {len(next(iter(results.values())))} entries of the OpInfo database, the "
        f"first {samples} samples of each, dynamic dimensions where torch.export allows them; "
        f"{machine()}, torch {torch.__version__}. Samples that do not exist for a dtype are not "
        "counted.\n\n"
        f"{markdown(head, lines, right=range(2, 6))}\n\n"
        f"Bars: pass in float32 ≥ {BAR}: {passed}; wrong = 0: {wrong}; "
        f"behind torch.onnx in a family: {', '.join(ahead) or 'nowhere'}.\n\n"
        f"By family, operators that pass or are random alike, ours with onnxscript's : torch.onnx"
        f"\n\n{families}\n\nWhy the others do not pass, with onnxscript's:\n\n{_why(results)}"
    )
    return text, not wrong and not ahead and (not single or passed >= BAR)


def _count(rows: list[Row], column: str, outcome: str) -> int:
    return sum(row[column]["outcome"] == outcome for row in rows)


def _family(name: str) -> str:
    return next((f for f in FAMILIES if name.startswith(f"{f}.")), "torch")


def _families(results: dict[str, list[Row]]) -> tuple[str, list[str]]:
    """The table, and where ours passes fewer."""
    behind = []
    cells: dict[str, dict[str, str]] = defaultdict(dict)
    for dtype, rows in results.items():
        groups: dict[str, list[Row]] = defaultdict(list)
        for row in rows:
            if row[BORROWED]["outcome"] != "no_sample":
                groups[_family(row["name"])].append(row)
        for family, group in groups.items():
            ours, peer = (sum(r[c]["outcome"] in PASSED for r in group) for c in (BORROWED, PEER))
            cells[family][dtype] = f"{ours} : {peer} of {len(group)}"
            if ours < peer:
                behind.append(f"{family} {dtype}")
    lines = [(family, *(found.get(d, "") for d in results)) for family, found in cells.items()]
    return markdown(("family", *results), sorted(lines), right=range(1, len(results) + 1)), behind


def _kind(row: Row) -> str:
    outcome, reason = row[BORROWED]["outcome"], row[BORROWED]["reason"]
    return next(
        kind for o, r, kind in KINDS if re.fullmatch(o, outcome) and re.search(r, reason, re.I)
    )


def _why(results: dict[str, list[Row]]) -> str:
    found: dict[tuple[str, str], list[str]] = defaultdict(list)
    for dtype, rows in results.items():
        for row in rows:
            if row[BORROWED]["outcome"] not in (*PASSED, "no_sample"):
                found[_kind(row), dtype].append(row["name"])
    lines = [(kind, dtype, str(len(names)), ", ".join(names)) for (kind, dtype), names in
             sorted(found.items())]  # fmt: skip
    return markdown(("kind", "dtype", "", "operators"), lines, right=[2])
