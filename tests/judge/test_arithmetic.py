from __future__ import annotations

import pytest
import torch
from torch import nn

from torchferry.judge.arithmetic import ComputesInFloat64, RoundsOtherwise, WatchesDtypes, moved


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16])
def test_numbers_move_to_those_next_to_them(dtype):
    x = torch.linspace(-3, 3, 101).to(dtype).reshape(101, 1)
    found = moved(x, torch.Generator().manual_seed(0))
    up = torch.nextafter(x.double(), x.double() + 1) if dtype == torch.float64 else None
    steps = (found.double() - x.double()).abs() / (x.double().abs() * torch.finfo(dtype).eps)
    assert steps.nan_to_num().max() <= 1
    assert (steps > 0).sum() > 30
    assert up is None or bool((found.double() <= up.maximum(x.double() * 1.0000001)).any())
    again = moved(x, torch.Generator().manual_seed(0))
    assert torch.equal(found, again)


def test_counts_masks_and_integers_stay():
    kept = torch.tensor([0.0, 1.0, -7.0, torch.inf, -torch.inf, torch.nan])
    found = moved(kept.repeat(20), torch.Generator())
    assert torch.equal(found.nan_to_num(9), kept.repeat(20).nan_to_num(9))
    largest = torch.full((20,), torch.finfo(torch.float32).max)
    assert moved(largest, torch.Generator()).isfinite().all()
    ints = torch.arange(3)
    assert moved(ints, torch.Generator()) is ints


def rounded(run, *args):
    with torch.no_grad(), RoundsOtherwise(0):
        return run(*args)


def test_what_is_computed_moves_and_what_is_only_moved_does_not():
    x = torch.rand(50)
    assert not torch.equal(rounded(lambda t: t * 1.1, x), x * 1.1)
    assert torch.allclose(rounded(lambda t: t * 1.1, x), x * 1.1, rtol=1e-6)
    for run in (
        lambda t: t.view(5, 10).T.clone(), lambda t: t.relu(), lambda t: torch.cat([t, t]),
        lambda t: t.sort().values, lambda t: t[t > 0.5], lambda t: t == t.max(),
    ):  # fmt: skip
        assert torch.equal(rounded(run, x), run(x))
    before = x.clone()
    rounded(lambda t: t[3:].view(-1), x)
    assert torch.equal(x, before)


def test_sums_that_cancel_out_move_as_far_as_they_may():
    x = torch.rand(50)
    run = lambda t: (t * 1.1 + 16000) - 16000  # noqa: E731  (what is computed)
    apart = (rounded(run, x) - run(x)).abs().max()
    assert 5e-4 < apart < 4e-3


def test_writes_in_place_and_whole_modules_move():
    x = torch.rand(9)
    assert not torch.equal(rounded(lambda t: t.clone().mul_(1.1), x), x.clone().mul_(1.1))
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True).eval()
    inputs = torch.rand(2, 5, 8)
    found = rounded(layer, inputs)
    with torch.no_grad():
        assert not torch.equal(found, layer(inputs))
        torch.testing.assert_close(found, layer(inputs))


def test_the_dtypes_that_a_call_computes_in():
    linear = nn.Linear(4, 4)

    def coarse(run):
        with torch.no_grad(), WatchesDtypes() as watch:
            run(torch.rand(2, 4))
        return watch.coarse

    assert coarse(linear) == set()
    assert coarse(lambda x: x.half().float()) == {torch.float16}
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert coarse(linear) == {torch.bfloat16}


class TestComputesInFloat64:
    def test_weights_are_widened_and_stay_as_they_are(self) -> None:
        layer = nn.Linear(64, 8)
        x = torch.randn(3, 64)
        right = x.double() @ layer.weight.double().T + layer.bias.double()
        with torch.no_grad(), ComputesInFloat64():
            found = layer(x)
            inside = layer(x.to(torch.float32)).to(torch.float16) * 1  # widened again
        assert found.dtype == inside.dtype == torch.float64
        assert layer.weight.dtype == torch.float32
        assert torch.allclose(found, right, rtol=0, atol=1e-14)
        assert torch.allclose(inside, right, rtol=0, atol=1e-14)

    def test_random_numbers_are_the_same(self) -> None:
        torch.manual_seed(0)
        plain = torch.rand(4, dtype=torch.float32) + torch.randn(4)
        torch.manual_seed(0)
        with ComputesInFloat64():
            wide = torch.rand(4, dtype=torch.float32) + torch.randn(4)
        assert wide.dtype == torch.float64
        assert torch.allclose(wide.float(), plain, rtol=0, atol=1e-6)

    def test_what_is_written_to_is_written_to(self) -> None:
        kept = torch.zeros(3)
        with ComputesInFloat64():
            kept.add_(torch.ones(3) / 3)
            view = kept[1:]
            view.mul_(2)
        assert kept.dtype == torch.float32
        assert torch.allclose(kept, torch.tensor([1.0, 2.0, 2.0]) / 3)
