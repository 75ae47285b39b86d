"""Traces leave nothing behind, on a torch without the private names too."""

import pytest
import torch
from torch import nn
from torch.nn.utils import parametrize

from torchferry.seams import table
from torchferry.seams.traces import functorch_ended, parametrizations_anew


class Twice(nn.Module):
    def forward(self, weight):
        return weight * 2


def depth():
    return torch._C._functorch.get_dynamic_layer_stack_depth()


def test_a_transform_that_is_left_under_way_ends():
    before = depth()
    with functorch_ended():
        torch._C._functorch._vmap_increment_nesting(2, "error")
        assert depth() == before + 1
    assert depth() == before


@pytest.mark.parametrize("name", ["get_dynamic_layer_stack_depth",
                                  "pop_dynamic_layer_stack_and_undo_to_depth"])  # fmt: skip
def test_without_its_names_nothing_is_ended(name, monkeypatch):
    hidden, real = f"torch._C._functorch.{name}", table.find.__wrapped__

    def find(asked):
        if asked == hidden:
            raise LookupError(asked)
        return real(asked)

    monkeypatch.setattr(table, "find", find)
    with functorch_ended():
        torch._C._functorch._vmap_increment_nesting(2, "error")
    torch._C._functorch._vmap_decrement_nesting()


def test_parametrized_weights_are_computed_in_the_block_within_cached_too():
    model = nn.Linear(2, 2)
    parametrize.register_parametrization(model, "weight", Twice())
    with parametrize.cached():
        kept = model.weight
        with parametrizations_anew():
            assert model.weight is not kept
        assert model.weight is kept
    with parametrizations_anew():
        assert model.weight is not model.weight
