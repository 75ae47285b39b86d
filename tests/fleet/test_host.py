"""Jobs in processes of their own: whatever becomes of one, the next is done."""

import time
from pathlib import Path

import pytest

from torchferry.fleet import host
from torchferry.fleet.host import close_hosts, run_job
from torchferry.fleet.job import OUTCOMES, Job

MODELS = """
import os, subprocess, time, torch

class Right(torch.nn.Module):
    def forward(self, x):
        print("printed", flush=True)
        return x * 2

class Crashes(torch.nn.Module):
    def forward(self, x):
        os.write(2, b"told before")
        os._exit(7)

class Dies(torch.nn.Module):
    def forward(self, x):
        os.kill(os.getpid(), 11)

class Leaves(torch.nn.Module):
    def forward(self, x):
        raise KeyboardInterrupt("left")

class Hangs(torch.nn.Module):
    def forward(self, x):
        time.sleep(600)

class Grows(torch.nn.Module):
    def forward(self, x):
        return x + len(bytearray(2**36))

class Spawns(torch.nn.Module):
    def forward(self, x):
        child = subprocess.Popen(["sleep", "600"])
        with open(__file__ + ".pid", "w") as file:
            file.write(str(child.pid))
        time.sleep(600)

def make(cls):
    def factory():
        return cls(), [(torch.randn(n, 3),) for n in (2, 4)]
    return factory

right, crashes, dies, leaves, hangs, grows, spawns = map(
    make, (Right, Crashes, Dies, Leaves, Hangs, Grows, Spawns)
)
"""


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    path = tmp_path_factory.mktemp("models") / "hosted.py"
    path.write_text(MODELS)
    yield path
    close_hosts()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "outcome", "reason"),
    [
        ("right", "ok", ""),
        ("crashes", "crash", "ended with 7: told before"),
        ("dies", "crash", "ended with -11"),
        ("leaves", "crash", "ended with 1: KeyboardInterrupt: left"),
        ("hangs", "timeout", "not done after 12 s"),
        ("grows", "memory", "MemoryError"),
    ],
)
def test_the_process_may_end_in_any_way(models, name, outcome, reason):
    row = run_job(Job(f"{models}:{name}"), timeout=12, memory=6 * 2**30)
    assert (row.outcome, reason in row.reason) == (outcome, True), row
    assert row.seconds > 0
    assert row.outcome in OUTCOMES
    assert host._IDLE.qsize() == 1  # the same host for all


@pytest.mark.slow
def test_what_a_model_started_ends_with_it(models):
    row = run_job(Job(f"{models}:spawns"), timeout=8)
    assert row.outcome == "timeout"
    status = Path("/proc", models.with_suffix(".py.pid").read_text(), "status")
    if not Path("/proc/self").exists():
        pytest.skip("no /proc")
    for _ in range(100):
        if not status.exists() or "zombie" in status.read_text():
            return
        time.sleep(0.05)
    pytest.fail("it still runs")


@pytest.mark.slow
def test_a_host_that_ended_is_a_row_and_the_next_job_has_another(models, monkeypatch):
    monkeypatch.chdir(models.parent)
    first = run_job(Job(f"{models.name}:right"))
    assert first.outcome == "ok"
    ended = host._IDLE.get_nowait()
    ended.process.kill()
    ended.process.wait()
    host._IDLE.put(ended)
    row = run_job(Job(f"{models.name}:right"))
    assert (row.outcome, row.reason) == ("crash", "the process ended with -9: its host ended")
    assert run_job(Job(f"{models.name}:right")).outcome == "ok"


def test_closing_without_any(tmp_path: Path):
    close_hosts()
    assert host._IDLE.empty()
