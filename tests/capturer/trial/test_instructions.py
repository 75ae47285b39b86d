"""The instructions of the user's code that run."""

from __future__ import annotations

import importlib
import sys
import textwrap
from fractions import Fraction

import torch

from torchferry.capturer.trial.instructions import first_line, run_instructions


def double(x: int) -> int:
    if x > 1:
        x = x * 2
    return x


def choose(x: int) -> int:
    return x + 1 if x > 1 else x - 1


def ran(function, *args: object) -> set:
    with run_instructions() as found:
        function(*args)
    return found


def test_what_skips_code_runs_less_and_what_branches_runs_other_code() -> None:
    assert ran(double, 1) < ran(double, 2)
    assert ran(double, 3) == ran(double, 2)
    assert not ran(choose, 1) <= ran(choose, 2)
    assert first_line(ran(double, 2) - ran(double, 1)).endswith(": x = x * 2")
    assert first_line(set()) == ""


def test_functions_that_are_called_count_and_packages_do_not() -> None:
    assert {code.co_name for code, _ in ran(lambda: choose(double(2)))} >= {"choose", "double"}
    inside = ran(lambda: (Fraction(1, 2) + 1, torch.nn.functional.pad(torch.ones(1), (1, 1))))
    assert {code.co_filename for code, _ in inside} == {__file__}


def test_a_package_that_is_not_well_known_counts(tmp_path, monkeypatch) -> None:
    folder = tmp_path / "site-packages"
    folder.mkdir()
    code = """
        import torch
        class Clip(torch.nn.Module):
            def forward(self, x):
                return x[:, -50:] if x.shape[0] == 1 else x
    """
    (folder / "somebodys_models.py").write_text(textwrap.dedent(code))
    monkeypatch.syspath_prepend(folder)
    model = torch.nn.Sequential(importlib.import_module("somebodys_models").Clip())
    runs = []
    for rows in (1, 2):
        with run_instructions() as found:
            model(torch.ones(rows, 3))
        runs.append(found)
    assert "x[:, -50:]" in first_line(runs[0] - runs[1])


def test_code_that_was_typed_in_counts() -> None:
    names: dict = {}
    exec("def half(x):\n    return x / 2 if x > 1 else x", names)  # noqa: S102  (what is tested)
    assert ran(names["half"], 2) != ran(names["half"], 1)


def test_a_tracer_of_somebody_else_is_there_again() -> None:
    def tracer(*_: object) -> None:
        return None

    before = sys.gettrace()
    sys.settrace(tracer)
    try:
        ran(double, 2)
        assert sys.gettrace() is tracer
    finally:
        sys.settrace(before)
