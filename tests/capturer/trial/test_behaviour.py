"""What runs of a model's code at usual sizes, and at others."""

from __future__ import annotations

import torch
from torch import nn

from torchferry.capturer.trial.behaviour import Behaviour, count_numbers
from torchferry.capturer.trial.reliance import run_model
from torchferry.dims import Condition
from torchferry.observer import Observation


class Windowed(nn.Module):
    sizes = (64, 4096)
    width = 128

    def forward(self, x):
        if x.shape[0] == 1:
            return x[:, -50:]
        return x.clamp(max=x.shape[0]) * 2.5


def behaviour(*conditions):
    model = Windowed()
    seen = Observation.from_inputs(model, [((torch.rand(n, 3),), {}) for n in (4, 6)])
    return Behaviour(lambda inputs: run_model(model, inputs), model, seen, conditions, ())


def test_other_code_runs_where_a_condition_is_broken():
    several = Condition("n0 != 1", ("batch_size",))
    code = behaviour(several)
    ran, asked = code.run(((torch.rand(1, 3),), {}))
    assert ran - code.instructions_elsewhere([several])
    elsewhere = {one[0] for _, other in code.asked_elsewhere([several])
                 for said in other.values() for one in said}  # fmt: skip
    here = {one[0] for said in asked.values() for one in said}
    assert "torch.Tensor.__getitem__" in here - elsewhere


def test_what_is_asked_elsewhere_is_so_at_several_sizes():
    code = behaviour()
    usual = next(way for way, said in code.run(((torch.rand(4, 3),), {}))[1].items()
                 if "clamp" in said[0][0])  # fmt: skip
    bounds = {
        part for _, other in code.asked_elsewhere([]) for one in other[usual] for part in one
    }
    assert {2, 3, 4, 5, 6, 9} <= bounds


def test_numbers_are_those_of_functions_that_run():
    assert behaviour().numbers == [50]


def test_numbers_of_a_call_are_counted():
    assert count_numbers(((torch.ones(2, 3), 7), {"mask": torch.ones(4)})) == 10
