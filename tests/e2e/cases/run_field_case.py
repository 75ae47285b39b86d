"""Exports one of the field cases and calls it at all its sizes."""

from __future__ import annotations

import copy
import json
import signal
import tempfile
from pathlib import Path

import field_cases
import torch

import torchferry
from torchferry.errors import FerryError

SECONDS = 300


def run(name: str) -> dict[str, object]:
    model, seen_sets, later, notes = field_cases.cases()[name]()
    model = model.eval()
    fresh = copy.deepcopy(model)
    try:
        with torch.no_grad(), torchferry.observe(model) as seen:
            for one in copy.deepcopy(seen_sets):
                field_cases.call(model, one)
        program = torchferry.export(fresh, seen, **notes["options"])
    except FerryError as error:
        return {"status": "refused", "text": f"{type(error).__name__}: {error}"}
    report = program.report
    text = "" if report.ok else " ".join([report.verdict, *report.problems])
    folder = Path(tempfile.mkdtemp())
    program.save(folder / "model.onnx")
    refused = ""
    for one in (program, torchferry.load(folder)):
        for given in [*seen_sets, *later]:
            with torch.no_grad():
                want = field_cases.tensors(field_cases.call(copy.deepcopy(model), given))
            try:
                got = field_cases.tensors(field_cases.call(one, given))
            except FerryError as error:
                refused += f" {type(error).__name__}: {error}"
                continue
            for a, b in zip(want, got, strict=True):
                atol = notes["atol"] * max(1.0, float(a.double().abs().max())) if a.numel() else 0
                if a.shape != b.shape or not torch.allclose(
                    a.double(), b.double(), rtol=0, atol=atol, equal_nan=True
                ):
                    return {"status": "wrong", "text": f"{a} became {b}; report: {text}"}
    size = sum(part.stat().st_size for part in folder.iterdir())
    status = "refused" if refused else "unsure" if text else "equal"
    return {"status": status, "text": text + refused, "bytes": str(size)}


def write_outcome(name: str, file: Path) -> None:
    """Write what comes of a case as JSON."""
    signal.alarm(SECONDS)
    torch.manual_seed(0)
    torch.set_num_threads(1)
    file.write_text(json.dumps(run(name)), "utf-8")
