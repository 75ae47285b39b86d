from __future__ import annotations

import io
import logging

import pytest
import torch

from torchferry.observer.trace import Trace


def describe(value: object) -> str:
    return f"<{value}>"


def test_a_call_prints_what_goes_in_and_what_comes_out(capsys: pytest.CaptureFixture[str]) -> None:
    trace = Trace(describe)
    trace.enters("m -- stolen", ((1, 2), {"x": 3}))
    trace.leaves("m", 4)
    assert capsys.readouterr().out == (
        "+m -- stolen\n  <- args=<(1, 2)> --- kwargs=<{'x': 3}>\n  -> <4>\n-m.\n"
    )


def test_a_call_without_values_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    Trace(describe).enters("m -- stolen")
    assert capsys.readouterr().out == "+m -- stolen\n"


def test_what_is_stored_is_told_to_those_who_ask(capsys: pytest.CaptureFixture[str]) -> None:
    for verbose in (False, True):
        trace = Trace(describe, verbose=verbose)
        trace.stores(("m", 0), 3840, "value")
        trace.notes("done")
    assert capsys.readouterr().out == ("-- stores key=('m', 0), size 3Kb -- <value>\n-- done\n")


def test_what_is_not_stored_is_told_to_everyone(
    capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, logger="torchferry"):
        Trace(describe).skips("k", "too large", 1)
        assert not caplog.records
        Trace(None).skips("k", "too large", 1)
    assert capsys.readouterr().out == "-- skips key='k', too large -- <1>\n"
    assert "key='k', too large" in caplog.text


def test_what_a_terminal_cannot_show_is_escaped(monkeypatch: pytest.MonkeyPatch) -> None:
    out = io.TextIOWrapper(io.BytesIO(), encoding="utf-8")
    monkeypatch.setattr("sys.stdout", out)
    Trace(describe).leaves("m", "\ud800 é")
    out.flush()
    assert out.buffer.getvalue() == b"  -> <\\ud800 \\xe9>\n-m.\n"


def test_without_a_description_nothing_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    trace = Trace(None, verbose=True)
    trace.enters("m", ((), {}))
    trace.leaves("m", torch.zeros(1))
    trace.stores("m", 0, 1)
    trace.notes("done")
    assert capsys.readouterr().out == ""
