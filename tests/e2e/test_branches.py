"""A program is right wherever it may be called, and refuses to be called elsewhere.

Whatever gave it: export, to_onnx, capture and convert, in this process and from a file.
"""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import torch
from branching_models import SIZES, VALUES

import torchferry
from families import in_turn
from torchferry.errors import CaptureError, ConversionError, Mismatch, UsageError
from torchferry.exporter.program import OnnxProgram
from torchferry.observer import Observation

CASES = {**SIZES, **VALUES}


def model_of(forward: Any) -> torch.nn.Module:
    model: torch.nn.Module = type("Model", (torch.nn.Module,), {"forward": forward})()
    return model.eval()


def exported(model: torch.nn.Module, seen: Observation) -> OnnxProgram:
    return torchferry.export(model, seen)


def unverified(model: torch.nn.Module, seen: Observation) -> OnnxProgram:
    return torchferry.export(model, seen, check=False)


def captured(model: torch.nn.Module, seen: Observation) -> OnnxProgram:
    return torchferry.to_onnx(torchferry.capture(model, seen))


WAYS = {"export": exported, "unverified": unverified, "capture": captured}


@pytest.mark.sample(14)
@pytest.mark.parametrize(("name", "way"), in_turn(CASES, WAYS))
def test_a_call_is_right_or_refused(name: str, way: str, tmp_path: Path) -> None:
    body, sets, later = CASES[name]
    model = model_of(body)
    seen = Observation.from_inputs(model, [(args, {}) for args in sets])
    try:
        program = WAYS[way](model, seen)
    except (CaptureError, ConversionError):
        return
    accepted = 0
    for one in (program, torchferry.load(program.save(tmp_path / "model.onnx"))):
        for args in [*sets, *later]:
            want = model(*copy.deepcopy(args))
            try:
                got = one(*copy.deepcopy(args))
            except (UsageError, Mismatch):
                continue
            torch.testing.assert_close(got, want, msg=f"{name}: {args}")
            accepted += 1
    report = program.report
    refused = report.ok is False if report else bool(program.session.signature.unproven)
    assert accepted or refused


def test_no_case_of_sizes_is_refused_altogether() -> None:
    """What the code does for the recorded sizes is exported for one of them at least."""
    for name in ("larger", "even", "padding", "strict, even"):
        body, sets, _ = SIZES[name]
        model = model_of(body)
        program = exported(model, Observation.from_inputs(model, [(args, {}) for args in sets]))
        for args in sets:
            torch.testing.assert_close(program(*args), model(*args))
