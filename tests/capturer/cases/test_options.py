"""What capture does besides the plain attempt: patches, state, classes, and what it refuses."""

from __future__ import annotations

import operator
from dataclasses import dataclass, replace

import pytest
import torch

from torchferry.capturer import capture
from torchferry.dims import Dim
from torchferry.errors import CaptureError
from torchferry.observer import Observation

FIRST = "non-strict, sizes 0 and 1 not special"
PATCHED = "the same with patches"


class Fixes(torch.nn.Module):
    def forward(self, x):
        n = operator.index(x.shape[0])  # fixes x
        return torch.arange(n) + x.reshape(n, -1).sum(1)


def seen_with(model, *sets):
    return Observation.from_inputs(model, sets)


def made(model, *sets, **options):
    return capture(model.eval(), seen_with(model, *sets), **options)


def test_a_dimension_that_was_asked_for_is_an_error_when_it_is_fixed(line):
    model = Fixes()
    seen = seen_with(model, ((torch.randn(3, 2),), {}), ((torch.randn(5, 2),), {}))
    seen = replace(seen, named={("x", 0): Dim.of("rows")})
    with pytest.raises(CaptureError) as caught:
        capture(model, seen)
    assert "dimension rows (x axis 0) was fixed to 3" in str(caught.value)
    assert line("fixes x") in str(caught.value)
    assert caught.value.attempts[0][0] == FIRST


def test_patches_are_tried_when_a_size_is_fixed_and_may_be_forbidden():
    model = torch.nn.GRU(3, 4)
    sets = [((torch.randn(n, 2, 3),), {}) for n in (4, 6)]
    found = made(model, *sets)
    assert [(a.strategy, a.error is None) for a in found.attempts] == [
        (FIRST, False), (PATCHED, True),
    ]  # fmt: skip
    assert found.attempts[1].patches == found.patches == ("torch.ops.aten.gru.input",)
    without = capture(model, seen_with(model, *sets), patch=False)
    assert [f.axis for f in without.fixed] == [0]
    assert PATCHED not in [a.strategy for a in without.attempts]


def test_a_custom_patch():
    class Sized(torch.nn.Module):
        def forward(self, x):
            return x * self.rows(x)

        def rows(self, x):
            return operator.index(x.shape[0])

    class Rows:
        _PATCHES_ = ("rows",)
        _PATCHED_CLASS_ = Sized

        def rows(self, x):
            return x.shape[0]

    sets = [((torch.randn(n, 2),), {}) for n in (4, 6)]
    assert made(Sized(), *sets).sizes == {"batch_size": 4}
    found = capture(Sized(), seen_with(Sized(), *sets), custom_patches=[Rows])
    assert found.fixed == ()
    assert found.patches[0].endswith("Sized.rows")
    assert found.program.module()(x=torch.ones(9, 2)).tolist() == [[9, 9]] * 9


def test_dataclasses_in_and_out_are_registered_and_told():
    @dataclass
    class Given:
        x: torch.Tensor

    @dataclass
    class Made:
        y: torch.Tensor

    class Model(torch.nn.Module):
        def forward(self, given):
            return Made(given.x + 1)

    found = made(Model(), *(((Given(torch.randn(n, 2)),), {}) for n in (3, 5)))
    assert [name.rpartition(".")[2] for name in found.registered] == ["Given", "Made"]
    assert found.fixed == ()
    got = found.program.module()(given=Given(torch.zeros(7, 2)))
    assert isinstance(got, Made)
    assert got.y.shape == (7, 2)


def test_state_that_the_program_cannot_keep_is_told():
    class Counts(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.n = 0

        def forward(self, x):
            self.n += 1
            return x * self.n

    model = Counts()
    found = made(model, *(((torch.randn(n, 2),), {}) for n in (3, 5)))
    assert [(c.name, c.before, c.after) for c in found.changed] == [("n", "0", "1")]
    assert model.n == 0


def test_other_lines_that_depend_on_values_are_told_too(line):
    class Twice(torch.nn.Module):
        def forward(self, x):
            if x.sum() > 0:  # one
                x = x + 1
            if x.max() > 3:  # two
                x = x * 2
            return x

    with pytest.raises(CaptureError) as caught:
        made(Twice(), ((torch.randn(4),), {}), ((torch.randn(5),), {}), rewrite=False)
    assert f"at {line('one')}" in str(caught.value)
    assert f"Other lines like it:\n  {line('two')}" in str(caught.value)
