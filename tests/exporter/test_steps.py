from __future__ import annotations

import threading
import time

import pytest

from torchferry.exporter.steps import Steps, bytes_text, counted


def test_steps_are_measured_in_order() -> None:
    steps = Steps()
    with steps.step("wait") as made:
        time.sleep(0.05)
        made("a nap")
    with steps.step("count"):
        sum(range(300_000))
    first, second = steps.done
    assert (first.name, first.size, second.name, second.size) == ("wait", "a nap", "count", "")
    assert 0.05 <= first.seconds < 5
    assert first.cpu_seconds < first.seconds
    assert second.cpu_seconds > 0


def test_the_peak_sees_what_was_freed_again() -> None:
    steps = Steps()
    with steps.step("little"):
        pass
    with steps.step("much"):
        block = bytearray(150 * 2**20)
        time.sleep(0.1)
        del block
    little, much = steps.done
    assert 100 * 2**20 < much.peak_bytes - little.peak_bytes < 300 * 2**20


def test_progress_is_told_as_a_step_begins() -> None:
    told: list[str] = []
    steps = Steps(told.append)
    with steps.step("capture"):
        assert told == ["capture"]
        assert steps.done == []
    with steps.step("convert"):
        pass
    assert told == ["capture", "convert"]


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_a_step_that_fails_is_not_done_and_leaves_no_thread(error: type[BaseException]) -> None:
    steps = Steps()
    before = threading.active_count()
    with pytest.raises(error), steps.step("capture"):
        raise error
    assert steps.done == []
    assert threading.active_count() == before


def test_numbers_for_people() -> None:
    assert [counted(n, "output") for n in (0, 1, 2)] == ["0 outputs", "1 output", "2 outputs"]
    assert counted(134_515_008, "parameter") == "134.5 M parameters"
    assert [bytes_text(n) for n in (0, 1023, 1024, 2**20, 3 * 2**30)] == [
        "0 B", "1023 B", "1.0 KiB", "1.0 MiB", "3.0 GiB",
    ]  # fmt: skip
