"""A simulated future: each seam is hidden in turn; the main job works or says what is missing."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from torchferry.seams.table import SEAMS

SCRIPT = Path(__file__).with_name("future.py")
NEEDED = [name for name, seam in SEAMS.items() if not seam.without]
COMPILE = [name for name, seam in SEAMS.items() if "torch.compile" in seam.purpose]
# The export itself asks for these; the other needed ones are for one feature each.
ALWAYS = NEEDED[: NEEDED.index("torch._C.DispatchKey")]


def run(job, *names):
    command = [sys.executable, str(SCRIPT), job, *names]
    # A graph that an earlier run compiled would not be traced again.
    variables = os.environ | {"TORCHFERRY_CACHE": "0"}
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=variables)
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


def is_told(name, said):
    return "\n" not in said and f"has no {name}, which torchferry needs for" in said


@pytest.fixture(scope="module")
def needed():
    return {row["name"]: row for row in run("export", *ALWAYS)}


@pytest.mark.sample(3)
@pytest.mark.parametrize("name", [*ALWAYS])
def test_an_export_says_what_it_cannot_do_without(name, needed):
    row = needed[name]
    assert row["end"] == "said", row["said"]
    assert is_told(name, row["said"])


def test_an_export_is_right_without_all_the_others_at_once():
    others = [name for name in SEAMS if name not in ALWAYS]
    nothing, all_of_them = run("export", "torchferry.none", ",".join(others))
    assert nothing["end"] == "right", nothing["said"]
    assert all_of_them["end"] == "right", all_of_them["said"]


@pytest.mark.slow
def test_the_compile_backend_says_what_it_lacks():
    names = "torch._dynamo.backends.common.aot_autograd", "onnxruntime.InferenceSession._sess"
    nothing, *hidden = run("compile", "torchferry.none", *names)
    assert nothing["end"] == "right", nothing["said"]
    for name, row in zip(names, hidden, strict=True):
        assert row["end"] == "said", row["said"]
        assert is_told(name, row["said"])


@pytest.mark.slow
def test_each_alone():
    """Each is a process of about two seconds."""
    rows = run("export", *SEAMS) + run("compile", *COMPILE)
    wrong = [
        row
        for row in rows
        if not (
            row["end"] == "right" or (row["end"] == "said" and is_told(row["name"], row["said"]))
        )
        or (row["end"] == "said" and SEAMS[row["name"]].without and row["name"] not in COMPILE)
    ]
    assert not wrong, json.dumps(wrong, indent=1)
