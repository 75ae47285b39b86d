from __future__ import annotations

from typing import Any

import pytest
import torch

from torchferry.zoo import families
from torchferry.zoo.families.everyday import EVERYDAY

INPUTS = [(row.name, key) for row in EVERYDAY for key in row.inputs]


@pytest.mark.parametrize("name", families("everyday"))
def test_it_runs(name: str, check_runs: Any) -> None:
    check_runs(name)


@pytest.mark.parametrize(("name", "key"), INPUTS)
def test_every_input_matters(name: str, key: str, how_far: Any) -> None:
    def change(inputs: dict[str, Any]) -> None:
        flat = inputs[key].view(-1)
        if flat.dtype == torch.bool:
            flat[-2] = ~flat[-2]
        elif key == "offsets":
            flat[1] -= 2
        else:
            flat[1] += -1 if flat.dtype == torch.int64 and flat[1] > 0 else 1

    assert how_far(name, change) > 1e-3


@pytest.mark.parametrize("row", EVERYDAY, ids=lambda row: row.name)
def test_one_set_has_batch_one_and_sides_differ(row: Any, built: Any) -> None:
    first = [next(iter(one.values())) for one in row.sets]
    assert 1 in first
    for inputs in built(row.name).input_sets:
        for value in inputs.values():
            if value.ndim == 4:
                assert value.shape[2] != value.shape[3]


def test_the_masks_leave_every_row_something(built: Any) -> None:
    for name in ("transformer_encoder", "multihead_attention"):
        masks = [inputs["padding_mask"] for inputs in built(name).input_sets]
        assert masks[0].any()
        assert not any(mask[:, 0].any() for mask in masks)


def test_an_empty_list_is_among_the_bags(built: Any) -> None:
    offsets = built("embedding_bag").input_sets[0]["offsets"]
    assert (offsets[1:] == offsets[:-1]).any()
