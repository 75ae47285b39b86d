from __future__ import annotations

import pytest
import torch

from torchferry.judge.choices import ChoosesOtherwise, Places, as_good

TIED = torch.tensor([[1.0, 7.0, 7.0, 2.0, 7.0, 1.0]])


def chosen(run, x, seed=0):
    mode = ChoosesOtherwise(seed)
    with torch.no_grad(), mode:
        return run(x), mode


@pytest.mark.parametrize(
    ("run", "first", "last"),
    [
        (lambda x: x.topk(2).indices, [[1, 2]], [[4, 2]]),
        (lambda x: x.argmax(-1), [1], [4]),
        (lambda x: x.argmax(), 1, 4),
        (lambda x: x.argmin(-1, keepdim=True), [[5]], [[0]]),
        (lambda x: x.max(-1).indices, [1], [4]),
        (lambda x: x.min(-1, keepdim=True).indices, [[5]], [[0]]),
        (lambda x: x.sort(-1).indices, [[5, 0, 3, 4, 2, 1]], [[0, 5, 3, 1, 2, 4]]),
        (lambda x: x.argsort(-1, descending=True)[:, :3], [[1, 2, 4]], [[4, 2, 1]]),
        (lambda x: x.kthvalue(6).indices, [1], [4]),
        (lambda x: x.T.topk(2, dim=0).indices, [[1], [2]], [[4], [2]]),
    ],
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.int64])
def test_ties_are_broken_both_ways_and_the_numbers_stay(run, first, last, dtype):
    x = TIED.to(dtype)
    for seed, places in ((1, first), (0, last)):
        found, mode = chosen(run, x, seed)
        assert found.tolist() == places
        assert len(mode.ties) == 1
    assert next(iter(mode.ties)).rpartition(":")[0].endswith(__file__)
    for seed in range(4):
        values, _ = chosen(lambda t: t.topk(4).values, x, seed)
        assert torch.equal(values, x.topk(4).values)


@pytest.mark.parametrize("gap", [0.0, 1e-7, 0.5])
def test_numbers_tie_up_to_rounding(gap):
    x = torch.tensor([0.1, 0.7 + gap, 0.3, 0.7])
    places = {int(chosen(lambda t: t.argmax(), x, seed)[0]) for seed in range(4)}
    assert places == ({1} if gap > 0.1 else {1, 3})


def test_a_mask_makes_no_ties_and_is_one_itself():
    x = torch.tensor([0.1, -1e9, 0.7, -1e9, float("-inf"), float("-inf")])
    found, _ = chosen(lambda t: t.sort(descending=True).indices, x)
    assert found.tolist() == [2, 0, 3, 1, 5, 4]


def test_what_does_not_tie_or_is_promised_stays():
    x = torch.rand(5, 7, generator=torch.Generator().manual_seed(0))
    found, mode = chosen(lambda t: (t.topk(3), t.sort(), t.argmax()), x)
    assert not mode.ties
    assert torch.equal(found[0].indices, x.topk(3).indices)
    found, mode = chosen(lambda t: t.sort(stable=True).indices, TIED)
    assert torch.equal(found, TIED.sort(stable=True).indices)
    assert not mode.ties


def test_memory_that_nothing_wrote_holds_other_numbers():
    found = [chosen(lambda t: torch.empty_like(t) + t.new_empty(2)[0], TIED, s) for s in (0, 1)]
    assert not torch.equal(found[0][0], found[1][0])
    assert all(mode.unset and not mode.ties for _, mode in found)
    written, _ = chosen(lambda t: torch.empty_like(t).copy_(t), TIED)
    assert torch.equal(written, TIED)


def equal(_, difference):
    return difference.abs == 0


NUMBERS = torch.tensor([9.0, 7.0, 7.0, 2.0, 7.0, 1.0])


@pytest.mark.parametrize(
    ("got", "right"),
    [
        ([0, 1, 2], True),
        ([0, 2, 1], True),
        ([0, 4, 2], True),
        ([0, 4, 4], False),
        ([1, 0, 2], False),
        ([0, 1, 3], False),
        ([0, 1, 6], False),
        ([0, 1, -1], False),
        ([0, 1], False),
    ],
)
def test_only_equal_numbers_may_change_places(got, right):
    expected, got = torch.tensor([0, 1, 2]), torch.tensor(got)
    assert as_good(Places("x", 0), NUMBERS, expected, got, equal) is right
    rows = [torch.stack([t, t]) for t in (NUMBERS, expected, got)]
    assert as_good(Places("x", -1), *rows, equal) is right
    assert as_good(Places("x", 0), *(t.T for t in rows), equal) is right


def test_places_in_any_order_are_compared_as_a_set():
    expected, got = torch.tensor([0, 1, 2]), torch.tensor([4, 0, 1])
    assert not as_good(Places("x", 0), NUMBERS, expected, got, equal)
    assert as_good(Places("x", 0, ordered=False), NUMBERS, expected, got, equal)
    assert not as_good(Places("x", 0, ordered=False), NUMBERS, expected, got + 1, equal)


def test_one_place_may_have_no_axis_of_its_own():
    numbers = torch.tensor([[1.0, 3.0, 3.0], [5.0, 5.0, 4.0]])
    one, other = torch.tensor([1, 0]), torch.tensor([2, 1])
    assert as_good(Places("x", 1, kept=False), numbers, one, other, equal)
    assert not as_good(Places("x", 1, kept=False), numbers, one, torch.tensor([1, 2]), equal)
    assert as_good(Places("x", None), numbers, torch.tensor(3), torch.tensor(4), equal)
    assert not as_good(Places("x", None), numbers, torch.tensor(3), torch.tensor(5), equal)
    zero = torch.tensor(0)
    assert as_good(Places("x", 0, kept=False), torch.tensor(2.0), zero, zero, equal)


def test_nothing_and_numbers_that_are_no_places():
    empty = torch.zeros(0, dtype=torch.int64)
    assert as_good(Places("x", 0), NUMBERS, empty, empty, equal)
    assert not as_good(Places("x", 0), NUMBERS, torch.tensor([0]), torch.tensor([0.0]), equal)
