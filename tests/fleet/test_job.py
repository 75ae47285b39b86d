"""One export of a sweep."""

from pathlib import Path

import pytest

from torchferry.fleet.job import Job, Row, perform

MODELS = """
import torch

def sets():
    return [(torch.randn(n, 3),) for n in (2, 4)]

class Right(torch.nn.Module):
    def forward(self, x):
        return x * 2

class Fixes(torch.nn.Module):
    def forward(self, x):
        return x * len(str(x.shape[0]))

class Decides(torch.nn.Module):
    def forward(self, x):
        if x.sum() > 0:
            self.seen = True
        return x + 1

def make(cls):
    def factory():
        return cls(), sets()
    return factory

right, fixes, decides = map(make, (Right, Fixes, Decides))

def large():
    raise RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 9")

def bare():
    return Right()
"""


@pytest.fixture(scope="module")
def models(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("models") / "swept.py"
    path.write_text(MODELS)
    return path


@pytest.mark.parametrize(
    ("name", "outcome", "reason"),
    [
        ("right", "ok", ""),
        ("fixes", "specialised", ""),
        ("decides", "refused", "CaptureError"),
        ("missing", "refused", "UsageError"),
        ("large", "memory", "can't allocate memory"),
        ("bare", "refused", "let package.module:factory return (model, input sets)"),
    ],
)
def test_what_came_of_it(models, name, outcome, reason):
    row = perform(Job(f"{models}:{name}"))
    assert (row.outcome, reason in row.reason) == (outcome, True), row.reason
    assert (row.nodes > 0) == (outcome in ("ok", "specialised") and row.nodes > 0)
    assert row.cpu_seconds > 0
    assert row.peak_bytes > 2**20


def test_a_good_one_was_compared(models):
    row = perform(Job(f"{models}:right"))
    assert row.nodes == 1
    assert row.sizes >= 3
    assert row.worst == 0
    assert Row.of(row.to_dict()) == row
