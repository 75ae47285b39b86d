"""Traces leave nothing behind, on a torch without the private names too."""

import pytest
import torch
from torch import nn
from torch.nn.utils import parametrize

from torchferry.seams import table
from torchferry.seams.traces import traced


class Twice(nn.Module):
    def forward(self, weight):
        return weight * 2


def depth():
    return torch._C._functorch.get_dynamic_layer_stack_depth()


def test_a_transform_that_is_left_under_way_ends():
    before = depth()
    with traced():
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
    with traced():
        torch._C._functorch._vmap_increment_nesting(2, "error")
    torch._C._functorch._vmap_decrement_nesting()


def test_parametrized_weights_are_computed_in_the_block_within_cached_too():
    model = nn.Linear(2, 2)
    parametrize.register_parametrization(model, "weight", Twice())
    with parametrize.cached():
        kept = model.weight
        with traced():
            assert model.weight is not kept
        assert model.weight is kept
    with traced():
        assert model.weight is not model.weight


def test_sizes_are_rounded_as_python_rounds():
    numbers = [*range(-30, 31), 149, 150, 250, 251]

    class Rounds(nn.Module):
        def forward(self, x, n):
            return x + round(n, -1), x + round(n, -2), x + round(n), x + round(n, 1)

    with traced():
        args, shapes = (torch.zeros(1, dtype=torch.long), 7), (None, torch.export.Dim.DYNAMIC)
        program = torch.export.export(Rounds(), args, dynamic_shapes=shapes).module()
    for n in numbers:
        found = program(torch.zeros(1, dtype=torch.long), n)
        assert [int(one) for one in found] == [round(n, -1), round(n, -2), n, n], n
