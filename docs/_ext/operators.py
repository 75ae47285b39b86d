"""The operators that are converted: a section a family, and what each family refuses."""

from __future__ import annotations

import ast
import importlib
import json
from collections import Counter, defaultdict
from functools import cache
from pathlib import Path

from rst import code, heading, prose, table

from torchferry.converter.coverage import Coverage, coverage

__all__ = ["coverage_text", "refusals", "text"]

ROOT = Path(__file__).resolve().parents[2]
SOURCES = ROOT / "src"
FAMILIES = {path.stem: path for path in SOURCES.glob("torchferry/converter/ops/**/[a-z]*.py")}
DTYPES = ("float32", "float16", "int64", "bool")


@cache
def _rows() -> list[Coverage]:
    return coverage()


def coverage_text() -> str:
    """How many overloads are converted, and by whom."""
    counts = Counter(row.by for row in _rows())
    rows = [
        ("lowered whole by torchferry", str(counts["ours"])),
        ("taken apart by PyTorch's own decompositions, then lowered", str(counts["decomposed"])),
        ("lowered by onnxscript", str(counts["borrowed"])),
        ("without an ONNX form: the export is refused, and says where", str(counts["none"])),
    ]
    return table(("functional overloads of ATen", "count"), rows, "70 30")


def text() -> str:
    """The operators of each family of ``converter/ops``, with tested dtypes and refusals."""
    families: dict[str, set[str]] = defaultdict(set)
    for row in _rows():
        if row.by == "ours":
            families[row.place.partition(".")[0]].add(row.operator)
    return "".join(_family(name, families[name]) for name in sorted(families))


def _family(name: str, operators: set[str]) -> str:
    out = heading(name.replace("_", " ").capitalize(), "-", f"operators-{name}")
    path = FAMILIES.get(name)
    if path is not None:
        dotted = path.relative_to(SOURCES).with_suffix("").as_posix().replace("/", ".")
        module = importlib.import_module(dotted)
        out += f"{prose(' '.join((module.__doc__ or '').split()))}\n\n"
    by_name: dict[str, list[str]] = defaultdict(list)
    for operator in sorted(operators):
        _, operator_name, overload = operator.split(".", 2)
        by_name[operator_name].append(overload)
    rows = [
        (code(n), ", ".join(code(o) for o in overloads), _tested(n))
        for n, overloads in by_name.items()
    ]
    out += table(("aten", "overloads", "equal PyTorch in"), rows, "30 40 30")
    reasons = [] if path is None else refusals(path)
    if reasons:
        out += (
            "Refused with a reason:\n\n"
            + "".join(f"* {prose(reason)}\n" for reason in reasons)
            + "\n"
        )
    return out


@cache
def _opinfo() -> dict[str, dict[str, str]]:
    found: dict[str, dict[str, str]] = json.loads(
        (ROOT / "benchmarks/opinfo.json").read_text("utf-8")
    )
    return found


def _tested(name: str) -> str:
    passed = [
        dtype for dtype in DTYPES if _opinfo().get(dtype, {}).get(name, "").startswith("pass")
    ]
    return ", ".join(passed) or "the tests of its family"


def refusals(path: Path) -> list[str]:
    """The reasons with which the lowerings of a file refuse arguments, in order."""
    found: dict[str, None] = {}
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if not (isinstance(node, ast.Call) and node.args):
            continue
        if ast.unparse(node.func) in ("ValueError", "NotImplementedError"):
            found |= dict.fromkeys(filter(None, [_reason(node.args[0])]))
    return list(found)


def _reason(node: ast.expr) -> str:
    if isinstance(node, ast.Constant):
        return str(node.value)
    if isinstance(node, ast.JoinedStr):
        return "".join(str(p.value) if isinstance(p, ast.Constant) else "…" for p in node.values)
    return ""
