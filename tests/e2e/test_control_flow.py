"""Loops over a dynamic size, and branches on values, are rewritten where they stand in the way."""

import copy

import pytest
import torch
from control_flow_models import MODELS, Decides, FillsATensor

import torchferry
from torchferry.errors import CaptureError
from torchferry.seams.pytorch import pytree


def export(make, **options):
    torch.manual_seed(0)
    model = make().eval()
    sets = [(args, {}) for args in MODELS[make][0]]
    return model, torchferry.export(copy.deepcopy(model), copy.deepcopy(sets), **options)


@pytest.mark.sample(5)
@pytest.mark.parametrize("make", MODELS, ids=lambda make: make.__name__)
def test_it_is_right_at_sizes_and_values_not_seen(make):
    model, program = export(make)
    assert program.report.ok, str(program.report)
    assert "rewritten" in str(program.report)
    recorded, later = MODELS[make]
    for args in [*recorded, *later]:
        with torch.no_grad():
            want = model(*copy.deepcopy(args))
        got = program(*copy.deepcopy(args))
        for one, other in zip(*map(pytree.tree_leaves, (got, want)), strict=True):
            torch.testing.assert_close(torch.as_tensor(one), torch.as_tensor(other))


def test_a_recurrence_is_one_scan():
    _, program = export(FillsATensor)
    assert [node.op_type for node in program.model.graph].count("Scan") == 1


def test_a_branch_can_be_left_as_it_is():
    with pytest.raises(CaptureError, match="the values of a tensor decide"):
        export(Decides, rewrite=False)


def test_a_loop_can_be_left_as_it_is():
    _, program = export(FillsATensor, rewrite=False)
    assert "fixed to 5" in str(program.report)
