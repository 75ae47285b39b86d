"""Other values for the tensors of a call."""

from __future__ import annotations

import torch

from torchferry.observer.unlike import raised, scaled, special_values, unlike


def test_numbers_get_both_signs_and_masks_both_values() -> None:
    x = torch.rand(6, 5) + 0.5
    mask = torch.ones(3, 2, dtype=torch.long)
    flags = torch.zeros(4, dtype=torch.bool)
    (args, kwargs), (same_sign, _) = unlike(((x, 3), {"mask": mask, "flags": [flags]}))
    assert bool((args[0] < 0).any())
    assert bool((args[0] > 8).any())
    assert args[1] == 3
    assert set(kwargs["mask"].unique().tolist()) == {0, 1}
    assert kwargs["mask"].dtype == torch.long
    assert bool(kwargs["flags"][0].any())
    assert bool((same_sign[0] >= 0).all())
    assert bool((same_sign[0] == 0).any())
    assert bool((mask == 1).all())
    assert not bool(flags.any())


def test_lengths_and_indices_become_others_that_are_no_larger() -> None:
    lengths, ids = torch.tensor([7, 7, 7, 7]), torch.tensor([[5, 9, 2, 8]])
    (first, _), (second, _) = unlike(((lengths, ids), {}))
    assert torch.equal(first[0], lengths)
    assert bool((second[0] >= 1).all())
    assert bool((second[0] < 7).any())
    assert bool((second[1] <= 9).all())
    assert not torch.equal(second[1], ids)


def test_positions_infinities_and_nothing_stay_as_they_are() -> None:
    ids = torch.tensor([[0, 2, 4]])
    hidden = torch.tensor([0.0, -torch.inf, torch.nan])
    empty = torch.ones(0, 3)
    for args, _ in unlike(((ids, hidden, empty), {})):
        assert torch.equal(args[0], ids)
        assert args[1][1] == -torch.inf
        assert bool(args[1][2].isnan())
        assert args[2].shape == (0, 3)


def test_a_mask_of_one_entry_changes_too() -> None:
    for args, _ in unlike(((torch.ones(1, 1, dtype=torch.int32),), {})):
        assert args[0].item() == 0


def test_each_tensor_gets_usual_and_special_numbers_alone() -> None:
    x, ids, flags = torch.zeros(9, 9), torch.full((40,), 7, dtype=torch.int32), torch.ones(3) > 0
    z = torch.zeros(20, dtype=torch.complex64)
    found = list(special_values(((x, ids, flags), {"z": z, "n": 3})))
    assert len(found) == 6
    for (new, _, _), named in found[:2]:
        assert named["z"] is z
        assert new.std() > 0.5 or not new.isfinite().all()
    (usual, *_), _ = found[0]
    (special, *_), _ = found[1]
    assert usual.isfinite().all()
    assert special.isnan().any()
    assert special.isinf().any()
    assert (special.abs() > 1e29).any()
    (_, positions, _), _ = found[2]
    (_, far, _), _ = found[3]
    assert positions.dtype is far.dtype is torch.int32
    assert (positions == 0).any()
    assert int(positions.min()) >= 0
    assert int(positions.max()) <= 7
    assert int(far.min()) < 0
    assert int(far.max()) > 7
    assert found[4][1]["z"].imag.abs().sum() > 0
    assert found[5][1]["z"].isnan().any()


def test_small_types_hold_their_special_numbers() -> None:
    for (new,), _ in special_values(((torch.full((30,), 200, dtype=torch.uint8),), {})):
        assert new.dtype is torch.uint8


def test_all_numbers_become_tiny_and_then_large() -> None:
    x, ids = torch.ones(3, dtype=torch.float16), torch.tensor([7])
    (tiny, named), (large, _) = scaled(((x, ids), {"y": torch.full((2,), -2.0)}))
    torch.testing.assert_close(named["y"], torch.tensor([2e-7, -2e-7]))
    assert tiny[0].dtype is large[0].dtype is torch.float16
    assert bool((tiny[0] < 1e-6).all())
    assert large[0].tolist() == [torch.inf, -torch.inf, torch.inf]
    assert tiny[1] is large[1] is ids


def test_raised_integers_are_near_multiples_of_the_largest_that_was_recorded():
    recorded = [((torch.tensor([[0, 3], [1, 2]]), torch.tensor([0, 1])), {})]
    given = (torch.tensor([[0]]), torch.tensor([1, 1])), {}
    found = [args for args, _ in raised(given, recorded)]
    assert [int(ids) for ids, _ in found] == [6, 12, 24, 48, 192]
    assert all(torch.equal(mask, given[0][1]) for _, mask in found)
    assert not [*raised(given, [((torch.ones(2), torch.tensor([0, 1])), {})])]
    small = (torch.tensor([100], dtype=torch.int8),), {}
    assert [int(args[0]) for args, _ in raised(small, [small])] == [127] * 5
