"""The components of a pipeline, each exported into a folder of its own."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from torchferry.errors import FerryError
from torchferry.report.model import Cell, Report, Section, Table
from torchferry.report.quantity import counted

__all__ = ["deliver_components"]

_TEXTS = ("*.json", "*.txt", "*.model")  # configurations, vocabularies, merges, sentencepiece


def deliver_components(
    model: str, out: Path, names: Sequence[str], deliver: Callable[[str, Path], Report]
) -> Report:
    """Export every component, also if one of them fails, and copy what pipelines read beside.

    Args:
        model: the folder of the pipeline.
        out: gets ``unet/model.onnx`` and so on, and the index, configurations, scheduler and
            tokenizers of the folder.
        names: of the components.
        deliver: exports one model into a folder.

    Returns:
        One report: a row and the problems of each component; ok if all are.
    """
    reports = {name: _deliver_one(deliver, f"{model}:{name}", out / name) for name in names}
    _copy_texts(Path(model), out, names)
    failed = [name for name, report in reports.items() if not report.ok]
    rows = tuple(
        (name, Cell(report.verdict, "good" if report.ok else "bad"))
        for name, report in reports.items()
    )
    good = counted(len(names) - len(failed), "component")
    return Report(
        title=f"export {model}",
        ok=not failed,
        verdict=f"{good} exported" + (f"; {', '.join(failed)} failed" if failed else ""),
        sections=(Section("Components", (Table(("component", "verdict"), rows),)),),
        problems=tuple(
            f"{name}: {problem}" for name, report in reports.items() for problem in report.problems
        ),
        next_steps=(f"look at report.html in the folder of each component in {out}",),
        data={"kind": "components", "components": {n: r.data for n, r in reports.items()}},
    )


def _copy_texts(folder: Path, out: Path, names: Sequence[str]) -> None:
    files = [path for kind in _TEXTS for path in (*folder.glob(kind), *folder.glob(f"*/{kind}"))]
    for file in files:
        part = file.parent.name
        halves = [name for name in (f"{part}_encoder", f"{part}_decoder") if name in names]
        for name in ("",) if file.parent == folder else halves or (part,):
            weights = file.name.endswith(".index.json")  # lists files that are not copied
            if weights or (name in names and not (out / name).is_dir()):  # that one failed
                continue
            (out / name).mkdir(parents=True, exist_ok=True)
            shutil.copyfile(file, out / name / file.name)


def _deliver_one(deliver: Callable[[str, Path], Report], model: str, out: Path) -> Report:
    try:
        return deliver(model, out)
    except FerryError as error:
        said: dict[str, Any] = {"kind": "refused", "error": str(error)}
        first = str(error).partition("\n")[0]
        return Report(f"export {model}", ok=False, verdict=first, problems=(first,), data=said)
