from __future__ import annotations

import os
import signal
import sys
import time

import pytest

from torchferry.diagnoser.trial.process import Limits, in_process
from torchferry.diagnoser.trial.status import StatusExport, StatusExportCode

pytestmark = [
    pytest.mark.skipif(not hasattr(os, "fork"), reason="a process is copied with os.fork"),
]

GOOD = StatusExport(
    StatusExportCode.FAIL_DISC, "DISC", "why\nmore", line="f.py:1", advice="do", notes=("note",),
    made="Model",
)  # fmt: skip


def die() -> StatusExport:
    os.kill(os.getpid(), signal.SIGSEGV)
    return GOOD


def leave() -> StatusExport:
    os._exit(7)


def raise_what_nobody_expects() -> StatusExport:
    raise SystemExit(3)


def no_kernel() -> StatusExport:
    return StatusExport(StatusExportCode.FAIL, "EVAL", "could not create a primitive")


def hang() -> StatusExport:
    time.sleep(60)
    return GOOD


def eat() -> StatusExport:
    bytearray(2**36)
    return GOOD


def test_a_status_comes_back_whole() -> None:
    assert in_process(lambda: GOOD, Limits()) == GOOD


@pytest.mark.parametrize(
    ("attempt", "limits", "step", "words"),
    [
        (die, Limits(), "CRASH", "segmentation fault"),
        (leave, Limits(), "CRASH", "exit code 7"),
        (leave, Limits(megabytes=1000), "CRASH", "exit code 7; it had 1000 megabytes at most"),
        (raise_what_nobody_expects, Limits(), "CRASH", "an exception"),
        (no_kernel, Limits(), "EVAL", "could not create a primitive"),
        (no_kernel, Limits(megabytes=1000), "MEMORY", "needs more memory"),
        (hang, Limits(seconds=0.5), "TIME", "0.5 s"),
    ],
)
def test_a_crash_and_a_hang_are_verdicts(
    attempt: object, limits: Limits, step: str, words: str
) -> None:
    start = time.monotonic()
    status = in_process(attempt, limits)
    assert (status.status, status.step) == (StatusExportCode.FAIL, step)
    assert words in status.reason
    assert time.monotonic() - start < 30


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="memory is limited on Linux")
def test_too_much_memory_is_a_verdict_and_this_process_keeps_its_own() -> None:
    status = in_process(eat, Limits(megabytes=1000))
    assert status.step == "MEMORY"
    assert in_process(lambda: GOOD, Limits(megabytes=1000)) == GOOD


def test_nothing_changes_here() -> None:
    values = [0]

    def attempt() -> StatusExport:
        values[0] = 1
        return GOOD

    in_process(attempt, Limits())
    assert values == [0]
