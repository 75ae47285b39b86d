"""State outside the modules, and what an export says of it."""

import functools
import random
import re

import numpy as np
import pytest
import torch
from torch import nn

import torchferry as tf
from torchferry.capturer.state.outside import DRAWN, caches_of, outside_state, trace_kept

CALLS = {"n": 0, "names": []}
STEP = 0


class Schedule:
    done = 0


def advance():
    global STEP  # noqa: PLW0603  (what is tested)
    STEP += 1
    return STEP


class InDictionary(nn.Module):
    def forward(self, x):
        CALLS["n"] += 1
        return x.clamp(-1, 1) if CALLS["n"] % 500 == 0 else x * 1


class InClass(nn.Module):
    def forward(self, x):
        Schedule.done += 1
        return x * (2 if Schedule.done > 500 else 1)


class InFunction(nn.Module):
    def forward(self, x):
        return x * (2 if advance() > 500 else 1)


class InClosure(nn.Module):
    def __init__(self):
        super().__init__()
        self.count = self.make()

    @staticmethod
    def make():
        calls = {"n": 0}

        def count():
            calls["n"] += 1
            return calls["n"]

        return count

    def forward(self, x):
        return x * (2 if COUNT() > 500 else 1)


COUNT = InClosure.make()


class Random(nn.Module):
    def forward(self, x):
        return x if random.random() < 0.01 else x * 2  # noqa: S311  (what is tested)


class Reads(nn.Module):
    """It writes nothing, and keeps what a first call needs."""

    def forward(self, x):
        CALLS["names"].append(len(CALLS["names"]))
        return x * (STEP + 1)


@pytest.mark.parametrize(
    ("model", "words"),
    [
        (InDictionary, r"forward changes CALLS\['n'\], outside the model, from \d+ to \d+"),
        (InClass, r"forward changes Schedule\.done, outside the model"),
        (InFunction, r"forward changes STEP, outside the model"),
        (InClosure, r"forward changes calls\['n'\], outside the model"),
        (Random, "forward draws Python's random numbers.*torch.rand"),
    ],
)
def test_an_export_says_what_forward_changes(model, words):
    report = tf.export(model(), [(torch.ones(2, 4),), (torch.ones(3, 4),)]).report
    assert not report.ok
    assert any(re.search(words, problem) for problem in report.problems)


def test_what_only_reads_is_right():
    x = torch.rand(1, 4)
    program = tf.export(Reads(), [(torch.ones(2, 4),), (torch.ones(3, 4),)])
    assert program.report.ok
    torch.testing.assert_close(program(x), x * (STEP + 1))


class Drops(nn.Module):
    """Drops what it computes now and then, in training; or always."""

    def __init__(self, draw, always=False):
        super().__init__()
        self.draw, self.always = draw, always

    def forward(self, x):
        dropped = self.draw() < 0.3
        return x if (self.training or self.always) and dropped else x * 2


@pytest.mark.parametrize("draw", [random.random, np.random.uniform])
def test_numbers_that_are_drawn_for_nothing_are_no_state(draw):
    sets = [(torch.ones(2, 4),), (torch.ones(3, 4),)]
    before = random.getstate()
    program = tf.export(Drops(draw).eval(), sets)
    assert program.report.ok, program.report.problems
    assert random.getstate() == before or draw is random.random
    program = tf.export(Drops(draw, always=True).eval(), sets)
    assert any(DRAWN in problem for problem in program.report.problems)


@functools.cache
def window(rows):
    return 50 if rows == 1 else 10**6


class Remembered(nn.Module):
    @functools.cache  # noqa: B019  (what is tested)
    def last(self, rows):
        return 40 if rows == 1 else 10**6

    def forward(self, x):
        return x[:, -window(x.shape[0]) :].mean(1) + x[:, -self.last(x.shape[0]) :].sum(1)


def test_what_a_cache_remembers_is_looked_at_as_if_it_ran():
    model = Remembered()
    assert caches_of(model) == [Remembered.last, window]
    sets = [(torch.rand(2, 6, 4),), (torch.rand(3, 9, 4),)]
    program = tf.export(model, sets, check=False)
    with pytest.raises(tf.UsageError, match=r"something else there.*(window|return 50)"):
        program(torch.rand(1, 60, 4))


def test_code_of_libraries_is_left_out():
    assert set(outside_state(nn.TransformerEncoderLayer(8, 2))) == {DRAWN}


class Settings:
    def __init__(self):
        self.scale = 1.0


SETTINGS = Settings()


@functools.lru_cache
def looked_up(n):
    return n


def test_nothing_of_a_trace_stays_outside():
    def in_cell():
        nonlocal kept
        kept = 2
        return kept

    class Everywhere(nn.Module):
        table = None

        def forward(self, x, seen=[]):  # noqa: B006  (what is tested)
            global LATER  # noqa: PLW0603  (the same)
            LATER = 1
            advance()
            in_cell()
            seen.append(1)
            CALLS["names"].append(looked_up(3))
            SETTINGS.scale, SETTINGS.new = 2.0, 1
            type(self).table = 1
            return x

    kept = 1
    model = Everywhere()
    looked_up(2)
    model(torch.zeros(1), [])
    globals().pop("LATER")
    step, names = STEP, [*CALLS["names"]]
    SETTINGS.scale, Everywhere.table, kept = 1.0, None, 1
    del SETTINGS.new
    looked_up.cache_clear()
    with trace_kept(model):
        model(torch.zeros(1))
        assert (STEP, kept, SETTINGS.scale, Everywhere.table) == (step + 1, 2, 2.0, 1)
    assert (step, kept, names) == (STEP, 1, CALLS["names"])
    assert (vars(SETTINGS), Everywhere.table) == ({"scale": 1.0}, None)
    assert Everywhere.forward.__defaults__ == ([],)
    assert "LATER" not in globals()
    assert looked_up.cache_info().currsize == 0
