"""Charts of the benchmark results, drawn from the JSON files beside `benchmarks/RESULTS.md`."""

from __future__ import annotations

import json
import re
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import geometric_mean
from typing import Any

from matplotlib.figure import Figure
from rst import code, prose, table

__all__ = ["text"]

DOCS = Path(__file__).resolve().parents[1]
RESULTS = DOCS.parent / "benchmarks"
PICTURES = DOCS / "generated"
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#999999")  # told apart by everybody
GREY = "#888888"  # readable on white and on black


def text(name: str) -> str:
    """A chart, with its table where it has one."""
    parts = {
        "compile": _compile, "convert": _convert, "deploy": _deploy, "field": _field,
        "optimize": _optimize, "planted": _planted, "runtime": _runtime, "losses": _losses,
        "missed": _missed, "start": _start, "sweep": _sweep,
    }  # fmt: skip
    return parts[name]()


def _read(name: str) -> Any:
    return json.loads((RESULTS / f"{name}.json").read_text("utf-8"))


def _chart(
    name: str, title: str, unit: str, labels: Sequence[str],
    series: Mapping[str, Sequence[float]], *, line: float | None = None,
) -> str:  # fmt: skip
    """Draw horizontal bars, a group for each label; return the directive that shows them."""
    height = 0.7 + 0.24 * len(labels) * max(1, len(series))
    figure = Figure(figsize=(7.2, height), layout="constrained")
    figure.patch.set_alpha(0)
    axes = figure.add_subplot()
    axes.patch.set_alpha(0)
    thick = 0.8 / len(series)
    for number, (label, values) in enumerate(series.items()):
        places = [row + number * thick for row in range(len(labels))]
        bars = axes.barh(places, values, thick * 0.9, color=COLOURS[number], label=label)
        axes.bar_label(bars, fmt="%.3g", padding=3, color=GREY, fontsize=8)
    axes.set_yticks([row + 0.4 - thick / 2 for row in range(len(labels))], labels, fontsize=8)
    axes.invert_yaxis()
    axes.margins(x=0.12)
    axes.set_xlabel(unit, color=GREY)
    axes.tick_params(colors=GREY)
    for spine in axes.spines.values():
        spine.set_color(GREY)
    if line is not None:
        axes.axvline(line, color=GREY, linewidth=1, linestyle="--")
    if len(series) > 1:
        axes.legend(frameon=False, labelcolor=GREY, fontsize=8)
    PICTURES.mkdir(exist_ok=True)
    figure.savefig(PICTURES / f"{name}.svg", metadata={"Date": None})
    return f".. image:: /generated/{name}.svg\n   :alt: {title}\n   :width: 100%\n\n"


def _runtime_groups() -> dict[str, dict[str, list[float]]]:
    """Kind of model (the first word of a case) to way to speed-ups over eager."""
    groups: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for row in _read("runtime")["results"]:
        kind = row["case"].split(",")[0].split(" ")[0]
        groups[kind][row["way"].replace("ours", "torchferry")].append(row["speedup"])
    return groups


def _runtime() -> str:
    groups = _runtime_groups()
    ways = list(dict.fromkeys(way for group in groups.values() for way in group if way != "eager"))
    kept = [way for way in ways if sum(way in group for group in groups.values()) > 1][:5]
    labels = sorted(groups)
    series = {
        way: [geometric_mean(groups[label].get(way, [1e-9])) for label in labels] for way in kept
    }
    series = {way: [0.0 if v < 1e-6 else v for v in values] for way, values in series.items()}
    title = "Speed-up over eager PyTorch, by kind of model and way"
    return _chart("runtime", title, "times as fast as eager", labels, series, line=1)


def _losses() -> str:
    best: dict[str, dict[str, float]] = defaultdict(dict)
    for row in _read("runtime")["results"]:
        best[row["case"]][row["way"]] = row["speedup"]
    rows = []
    for case, ways in best.items():
        others = {
            way: v for way, v in ways.items() if way == "inductor" or way.startswith("optimum")
        }
        ours = {way: v for way, v in ways.items() if way not in others and way != "eager"}
        if ours and others and max(others.values()) > max(ours.values()) * 1.02:
            name, value = max(others.items(), key=lambda item: item[1])
            rows.append((value / max(ours.values()), case, name, value, max(ours.values())))
    rows.sort(reverse=True)
    cells = [
        (case, code(name), f"{value:.2f} ×", f"{ours:.2f} ×")
        for _, case, name, value, ours in rows
    ]
    if not cells:
        return "In no case of the table is another way more than 2 % faster.\n\n"
    return table(("case", "faster there", "its speed-up", "our best"), cells, "45 25 15 15")


def _missed() -> str:
    """Every goal that `RESULTS.md` marks as missed, by section and case."""
    section, rows = "", []
    for line in (RESULTS / "RESULTS.md").read_text("utf-8").splitlines():
        if line.startswith("## "):
            section = line.removeprefix("## ")
        found = re.search(r"\b(?:MISSED|FAIL): (.+?)(?:\s*\||$)", line)
        if line.startswith("Bars missed: "):
            cases = line.removeprefix("Bars missed: ").split("; ")
            rows += [(code(section), *case.rsplit(": ", 1)) for case in cases]
        elif line.startswith("- MISSED: "):
            rows.append((code(section), *line.removeprefix("- MISSED: ").split(": ", 1)))
        elif found and line.startswith("|"):
            rows.append((code(section), line.split("|")[1].strip(), found[1]))
    groups: dict[tuple[str, str], list[str]] = defaultdict(list)
    for section, case, goal in rows:
        groups[section, goal.replace(" out of", ", out of")].append(case)
    cells = [(place, prose("; ".join(of)), prose(goal)) for (place, goal), of in groups.items()]
    return table(("benchmark", "cases", "goal that was missed"), cells, "25 45 30")


def _compile() -> str:
    rows = _read("compile")["results"]
    labels = list(dict.fromkeys(row["case"] for row in rows))
    ways = [way for way in dict.fromkeys(row["variant"] for row in rows) if way != "eager"]
    found = {(row["case"], row["variant"]): row["speedup"] for row in rows}
    series = {way: [found.get((label, way), 0.0) for label in labels] for way in ways}
    return _chart("compile", "torch.compile backends beside eager", "times as fast as eager",
                  labels, series, line=1)  # fmt: skip


def _convert() -> str:
    rows = _read("convert")
    labels = [row["model"] for row in rows]
    series = {
        "torchferry, with the capture": [row["ours"] for row in rows],
        "torch.onnx.export": [row["peer"] for row in rows],
    }
    return _chart("convert", "Seconds from module to ONNX model", "seconds", labels, series)


def _optimize() -> str:
    rows = _read("optimize")["lines"]
    labels = list(dict.fromkeys(f"{row['layers']} layers" for row in rows))
    ways = list(dict.fromkeys(row["how"] for row in rows))
    found = {(f"{row['layers']} layers", row["how"]): row["nodes"] for row in rows}
    series = {way: [float(found.get((label, way), 0)) for label in labels] for way in ways}
    return _chart("optimize", "Nodes left after the rewrites", "nodes", labels, series)


def _planted() -> str:
    counts: dict[str, Counter[bool]] = defaultdict(Counter)
    for row in _read("planted_nodes")["lines"]:
        counts[f"{row['file']}, against {row['against']}"][bool(row["right"])] += 1
    labels = sorted(counts)
    series = {
        "named the planted node": [float(counts[label][True]) for label in labels],
        "named another": [float(counts[label][False]) for label in labels],
    }
    return _chart("planted", "Planted faults that compare names", "faults", labels, series)


def _sweep() -> str:
    counts: dict[str, Counter[bool]] = defaultdict(Counter)
    for columns in _read("sweep")["families"].values():
        for column, said in columns.items():
            for part in said.split(","):
                number, _, verdict = part.strip().partition(" ")
                counts[column][verdict == "ok"] += int(number) if number.isdigit() else 0
    labels = list(counts)
    series = {
        "equal at every size": [float(counts[label][True]) for label in labels],
        "refused, different or failed": [float(counts[label][False]) for label in labels],
    }
    return _chart("sweep", "Exports of every family of the zoo", "models", labels, series)


def _field() -> str:
    """Models of other libraries: how many export right, and all that do not."""
    rows = [row for row in _read("field")["rows"] if row["job"][1] == "to_onnx"]
    counts: dict[str, Counter[bool]] = defaultdict(Counter)
    for row in rows:
        counts[row["job"][0].partition("/")[0]][row["outcome"] == "ok"] += 1
    series = {
        "equal at every size": [float(counts[label][True]) for label in counts],
        "refused, fixed or not done": [float(counts[label][False]) for label in counts],
    }
    title = "Exports of models of other libraries"
    chart = _chart("field", title, "models", list(counts), series)
    cells = [
        (code(row["job"][0]), row["outcome"], code(row["reason"][:120]))
        for row in rows
        if row["outcome"] != "ok"
    ]
    return chart + table(("not equal", "outcome", "what it said"), cells, "30 15 55")


def _deploy() -> str:
    """What a deployed folder costs, by precision."""
    decoders = [row for row in _read("deploy")["decoders"] if "mib" in row]
    cells = [
        (
            row["graph"], f"{row['mib']:.0f} MiB", f"{row['top1']:.1%}",
            f"{row['perplexity']:.2f}", f"{row['prefill']:.0f} ms", f"{row['decode']:.0f} ms",
        )
        for row in decoders
    ]  # fmt: skip
    columns = ("graph", "size", "same first token", "perplexity", "prefill of 128", "a token")
    return table(columns, cells, "30 14 14 14 14 14")


def _start() -> str:
    rows = _read("start")["results"]
    series = {"median": [row["wall_median"] for row in rows]}
    return _chart("start", "Starting", "milliseconds", [row["what"] for row in rows], series)
