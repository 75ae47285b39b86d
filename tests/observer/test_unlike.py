"""Other values for the tensors of a call."""

from __future__ import annotations

import torch

from torchferry.observer.unlike import unlike


def test_numbers_get_both_signs_and_masks_both_values() -> None:
    x = torch.rand(6, 5) + 0.5
    mask = torch.ones(3, 2, dtype=torch.long)
    flags = torch.zeros(4, dtype=torch.bool)
    (args, kwargs), (same_sign, _) = unlike(((x, 3), {"mask": mask, "flags": [flags]}))
    assert bool((args[0] < 0).any()) and bool((args[0] > 8).any()) and args[1] == 3
    assert set(kwargs["mask"].unique().tolist()) == {0, 1} and kwargs["mask"].dtype == torch.long
    assert bool(kwargs["flags"][0].any())
    assert bool((same_sign[0] >= 0).all()) and bool((same_sign[0] == 0).any())
    assert bool((mask == 1).all()) and not bool(flags.any())  # the given ones stay


def test_indices_infinities_and_nothing_stay_as_they_are() -> None:
    ids = torch.tensor([[0, 4, 2]])
    hidden = torch.tensor([0.0, -torch.inf, torch.nan])
    empty = torch.ones(0, 3)
    for args, _ in unlike(((ids, hidden, empty), {})):
        assert torch.equal(args[0], ids)
        assert args[1][1] == -torch.inf and bool(args[1][2].isnan())
        assert args[2].shape == (0, 3)


def test_a_mask_of_one_entry_changes_too() -> None:
    for args, _ in unlike(((torch.ones(1, 1, dtype=torch.int32),), {})):
        assert args[0].item() == 0
