from __future__ import annotations

from dataclasses import FrozenInstanceError
from pathlib import Path
from typing import Any

import pytest


def test_a_walk_finds_what_it_did(walked: Any, tmp_path: Path) -> None:
    found = walked.findings
    assert found.seen is walked.seen
    assert found.model is walked.program.model
    assert found.captured.program is walked.program.program
    assert (found.target, found.exporter, found.training) == ("onnx", "to_onnx", False)
    assert all(check.ok for check in found.checks)
    assert [step.name for step in found.steps.done] == [
        "infer shapes", "capture", "convert", "optimize", "save", "load", "verify",
    ]  # fmt: skip


def test_the_bytes_are_those_of_all_files(walked: Any, tmp_path: Path) -> None:
    walked.program.__class__(walked.program.model).save(tmp_path / "model.onnx")
    sizes = {file.name: file.stat().st_size for file in tmp_path.iterdir()}
    assert set(sizes) == {"model.onnx", "model.onnx_data"}
    assert walked.findings.bytes_written == sum(sizes.values())


def test_findings_do_not_change(walked: Any) -> None:
    with pytest.raises(FrozenInstanceError):
        walked.findings.training = True
