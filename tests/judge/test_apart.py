from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from torchferry.judge.apart import Apart, Note, available_memory, can_fork

pytestmark = pytest.mark.skipif(not can_fork(nn.ReLU()), reason="this system has no fork")

LONG = 60.0


def act(question: Any, note: Note) -> Any:
    """What a test asks for: a number is doubled, a word is a way to end."""
    note("side", f"the one that does {question}")
    match question:
        case int():
            return 2 * question
        case "pid":
            return os.getpid()
        case "crash":
            os.kill(os.getpid(), signal.SIGSEGV)
        case "abort":
            os.abort()
        case "leave":
            os._exit(7)
        case "killed":
            os.kill(os.getpid(), signal.SIGKILL)
        case "hang":
            time.sleep(LONG)
        case "raise":
            raise ZeroDivisionError
        case "eat":
            return len(bytearray(2**36))
        case "threads":
            return torch.get_num_threads()
    raise AssertionError(question)


def test_one_copy_answers_all_questions_and_is_gone_at_the_end() -> None:
    with Apart(act, forks=True) as apart:
        child = apart.ask("pid", LONG)
        assert child != os.getpid()
        assert [apart.ask(n, LONG) for n in (1, 2, 3)] == [2, 4, 6]
        assert apart.ask("pid", LONG) == child
        assert apart.ask("threads", LONG) == 1
    with pytest.raises(ProcessLookupError):
        os.kill(child, 0)
    with pytest.raises(ChildProcessError):  # no zombie either
        os.waitpid(child, os.WNOHANG)


@pytest.mark.parametrize(
    ("question", "kind", "reason"),
    [
        ("crash", "died", "signal 11, segmentation fault"),
        ("abort", "died", "signal 6, aborted"),
        ("leave", "died", "exit code 7"),
        ("killed", "memory", "the system ended it for want of memory"),
    ],
)
def test_an_end_has_a_reason_and_the_next_question_an_answer(
    question: str, kind: str, reason: str
) -> None:
    with Apart(act, forks=True) as apart:
        assert apart.ask(1, LONG) == 2
        ended = apart.ask(question, LONG)
        assert (ended.kind, ended.reason) == (kind, reason)
        assert ended.notes == {"side": f"the one that does {question}"}
        assert apart.ask(3, LONG) == 6


@pytest.mark.parametrize("forks", [True, False])
def test_an_exception_shows_in_this_process(forks: bool) -> None:
    with Apart(act, forks=forks) as apart:
        with pytest.raises(ZeroDivisionError):
            apart.ask("raise", LONG)
        assert (apart.ask("pid", LONG) == os.getpid()) is not forks
        assert apart.ask(3, LONG) == 6
    with Apart(act, forks=forks, here=lambda question, _: f"here: {question}") as apart:
        assert apart.ask("raise", LONG) == "here: raise"
        assert apart.ask(3, LONG) == (6 if forks else "here: 3")


def test_what_takes_too_long_is_ended() -> None:
    with Apart(act, forks=True) as apart:
        child = apart.ask("pid", LONG)
        start = time.monotonic()
        ended = apart.ask("hang", 0.3)
        assert (ended.kind, ended.reason) == ("overdue", "not done after 0.3 s")
        assert time.monotonic() - start < 5
        with pytest.raises(ProcessLookupError):
            os.kill(child, 0)
        assert apart.ask(1, LONG) == 2


@pytest.mark.skipif(sys.platform != "linux", reason="the limit is reckoned from /proc")
def test_more_memory_than_allowed_is_not_there() -> None:
    def allocate(size: int, _: Note) -> int | str:
        try:
            return torch.ones(size, dtype=torch.uint8).numel()
        except RuntimeError as error:
            return str(error)

    with Apart(allocate, forks=True, memory=200 * 2**20) as apart:
        assert apart.ask(2**20, LONG) == 2**20
        assert "can't allocate memory" in apart.ask(2**30, LONG)
    assert (available_memory() or 0) > 2**20


def test_nothing_is_printed_twice_nor_by_the_copy(capfd: pytest.CaptureFixture[str]) -> None:
    def speak(question: str, _: Note) -> str:
        sys.stdout.write(question)
        sys.stdout.flush()
        os.write(2, b"and on the other stream")
        return question

    sys.stdout.write("once\n")
    with Apart(speak, forks=True) as apart:
        assert apart.ask("never", LONG) == "never"
    assert capfd.readouterr() == ("once\n", "")


def test_an_exception_of_the_caller_ends_the_copy() -> None:
    seen: list[int] = []

    def interrupted() -> None:
        with Apart(act, forks=True) as apart:
            seen.append(apart.ask("pid", LONG))
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    with pytest.raises(ProcessLookupError):
        os.kill(seen[0], 0)


def test_finalizers_and_files_of_the_parent_are_left_alone(tmp_path: Path) -> None:
    class Owner:
        def __init__(self) -> None:
            self.me = self  # only the collector ends it

        def __del__(self) -> None:
            (tmp_path / f"{os.getpid()}").touch()

    def collect(_: Any, __: Note) -> None:
        import gc

        gc.collect()

    Owner()
    with Apart(collect, forks=True) as apart:
        apart.ask(0, LONG)
    assert [p.name for p in tmp_path.iterdir()] in ([], [str(os.getpid())])


def test_a_model_on_a_device_is_not_copied() -> None:
    class Elsewhere(nn.Module):
        def parameters(self, recurse: bool = True) -> Any:
            class Weight:
                device = torch.device("cuda")

            return iter([Weight()])

    assert can_fork(nn.Linear(2, 2))
    assert not can_fork(Elsewhere())
