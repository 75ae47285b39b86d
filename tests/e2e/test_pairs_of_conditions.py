"""Conditions that make no difference each, and do together or at large sizes only."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import nn

import torchferry as tf
from torchferry.errors import FerryError

Args = tuple[Any, ...]


def some(*sizes: int) -> torch.Tensor:
    return torch.randn(sizes, generator=torch.Generator().manual_seed(sum(sizes)))


def ones(*sizes: int) -> torch.Tensor:
    return torch.ones(sizes)


class SlidingAndFull(nn.Module):
    """A layer that sees 16 tokens, and one that does so for a step of one token only."""

    def forward(self, x, past):
        k = torch.cat([past, x], 1)
        steps = k.shape[1] - past.shape[1]
        for sliding in (True, False):
            seen = k[:, -16:] if sliding or steps == 1 else k
            x = x + (x @ seen.mT).softmax(-1) @ seen
        return x


class Ratio(nn.Module):
    def forward(self, high, low):
        times = high.shape[0] // low.shape[0]
        total = 0
        for always in (True, False):
            seen = high[:16] if always or times == 1 else high
            total = total + seen.sum(0)
        return total * low.sum()


class Difference(nn.Module):
    def forward(self, x, mask):
        width = (9999, 16)[bool(mask.shape[0] - x.shape[0] == 1)]
        return x[-width:].sum(0) * mask.sum()


class Pair(nn.Module):
    def forward(self, x, y):
        return x.sum() + y.sum() + 5 * (bool(x.shape[0] == 1) & bool(y.shape[0] == 1))


class Triple(nn.Module):
    def forward(self, x, y, z):
        both = bool(x.shape[0] == 1) & bool(y.shape[0] == 1)
        return x.sum() + y.sum() + z.sum() + 5 * (both & bool(z.shape[0] != 1))


class Positive(nn.Module):
    def forward(self, x, k):
        return x * (k > 0 and k)


class Covariance(nn.Module):
    """PyTorch gives up both axes where there is one row."""

    def forward(self, x):
        return torch.cov(x)


class Identity(nn.Module):
    """Recorded with tensors of unlike sizes, which cannot be one."""

    def forward(self, a, b):
        return a.sum() + b.sum() if a is b else a.sum() - b.sum()


class TwoOfThree(nn.Module):
    def forward(self, a, b, c):
        return a.sum() + b.sum() * 2 + c.sum() * (4 if (a is b) and (c is not a) else 5)


class Pooled(nn.Module):
    """A text network's pool over positions that a mask hides."""

    def forward(self, x):
        return nn.functional.max_pool1d(x, 2), nn.functional.adaptive_max_pool1d(x, 1)


class Bound(nn.Module):
    """A table in place of an if, and a bound that usual numbers do not reach."""

    def forward(self, x):
        return x.clamp(max=(1e4, 1e9)[bool(x.shape[0] > 1)])


class Epsilon(nn.Module):
    def forward(self, x):
        return x / (x.norm() + (1e-6, 1e-12)[bool(x.shape[0] > 1)])


class Ring(nn.Module):
    """torch takes ``n - 1 + 1`` rows for ``n``, which is wrong for none."""

    def forward(self, x, buffer):
        return torch.cat([buffer[1:], x[None]]).mean(0)


class Stride(nn.Module):
    def forward(self, x):
        return x[:: (2, 1)[bool(x[::4].shape[0] == 1)]].sum(0)


class LongWindow(nn.Module):
    """As `SlidingAndFull`, with a window that no usual size reaches."""

    def forward(self, x, past):
        k = torch.cat([past, x], 1)
        for sliding in (True, False):
            seen = k[:, -128:] if sliding or x.shape[1] == 1 else k
            x = x + (x @ seen.mT).softmax(-1) @ seen
        return x


class Pick(nn.Module):
    """Only the attribute has the number."""

    def __init__(self):
        super().__init__()
        self.windows = (64, 640)

    def forward(self, x, step):
        return x[:, -self.windows[min(step, 1)] :].mean(1)


class BothAreOne(nn.Module):
    """Python compares the second number only where the first is equal."""

    def forward(self, image, x):
        y = nn.functional.conv2d(image, torch.ones(1, 1, 3, 3)).sum()
        if x.shape[:2] == (1, 1):
            x = x + 1
        return x * y


class FirstCall(nn.Module):
    def forward(self, x, past, step):
        k = torch.cat([past, x], 1)
        if (past.shape[1], step) == (0, 0):
            k = k * 2
        return (x @ k.mT).softmax(-1) @ k + step


class Shifted(nn.Module):
    """Two integers that matter only together, as the shift of a window."""

    def forward(self, x, height, width):
        if (height, width) != (0, 0):
            x = x * 3
        return x + height + width


class LastTwoOfFour(nn.Module):
    def forward(self, bias, query, key, value):
        if key is value and query is not key:
            value = value * 2
        return bias + query * key + value


class StepOfAQuarter(nn.Module):
    """A size that is divided by another, which may be 0."""

    def forward(self, x):
        step = x.shape[1] // 4
        return x[:, ::step].sum(1) if step > 1 else x.sum(1)


SAME, TWICE = ones(4, 4), ones(2, 5, 4)
CASES = {
    SlidingAndFull: (
        [(some(2, 3, 4), some(2, 5, 4)), (some(3, 2, 4), some(3, 6, 4))],
        [(some(1, 1, 4), some(1, 30, 4)), (some(1, 1, 4), some(1, 5, 4)),
         (some(2, 2, 4), some(2, 30, 4))],
    ),
    Ratio: ([(some(8, 4), some(4, 4)), (some(9, 4), some(3, 4))], [(ones(25, 4), ones(25, 4))]),
    Difference: ([(some(5, 4), some(8)), (some(4, 4), some(9))], [(ones(20, 4), ones(21))]),
    Pair: (
        [(some(6, 4), some(5, 4)), (some(9, 4), some(7, 4))],
        [(ones(1, 4), ones(1, 4)), (ones(1, 4), ones(3, 4)), (ones(2, 4), ones(3, 4))],
    ),
    Triple: (
        [(some(6, 4), some(5, 4), some(8, 4)), (some(9, 4), some(7, 4), some(3, 4))],
        [(ones(1, 4), ones(1, 4), ones(3, 4)), (ones(1, 4), ones(1, 4), ones(1, 4))],
    ),
    Positive: ([(some(6, 4), 2), (some(9, 4), 3)], [(ones(6, 4), k) for k in (0, -2, 1, 5)]),
    Covariance: ([(some(3, 6),), (some(4, 7),)], [(some(1, 6),), (some(5, 6),)]),
    Identity: ([(some(6, 4), some(5, 4)), (some(9, 4), some(7, 4))], [(SAME, SAME)]),
    TwoOfThree: (
        [(some(6, 4),) * 3, (some(9, 4),) * 3],
        [(SAME, SAME, ones(4, 4)), (SAME, ones(4, 4), SAME), (ones(4, 4), ones(4, 4), SAME)],
    ),
    Bound: ([(some(6, 4),), (some(9, 4),)], [(ones(1, 4) * 1e6,), (ones(3, 4) * 1e6,)]),
    Epsilon: ([(some(6, 4),), (some(9, 4),)], [(ones(1, 4) * 1e-7,), (ones(3, 4) * 1e-7,)]),
    Ring: (
        [(some(4), some(6, 4)), (some(4), some(9, 4))],
        [(ones(4), ones(n, 4)) for n in (0, 1, 2)],
    ),
    Stride: ([(some(9, 4),), (some(12, 4),)], [(some(n, 4),) for n in (1, 3, 4, 5)]),
    LongWindow: (
        [(some(2, 3, 4), some(2, 4, 4)), (some(3, 2, 4), some(3, 6, 4))],
        [(some(1, 1, 4), some(1, 148, 4)), (some(1, 1, 4), some(1, 9, 4))],
    ),
    Pick: ([(some(2, 8, 4), 3), (some(3, 11, 4), 5)], [(some(1, 84, 4), 0), (some(1, 9, 4), 7)]),
    BothAreOne: (
        [(some(2, 1, 8, 9), some(3, 6, 4)), (some(3, 1, 7, 10), some(2, 4, 4))],
        [(some(2, 1, 8, 9), some(*n, 4)) for n in ((1, 1), (1, 3), (3, 1), (4, 5))],
    ),
    FirstCall: (
        [(some(2, 3, 4), some(2, 4, 4), 2), (some(3, 2, 4), some(3, 5, 4), 4)],
        [(some(2, 3, 4), some(2, n, 4), k) for n, k in ((0, 0), (0, 1), (4, 0), (1, 0), (7, 9))],
    ),
    Shifted: (
        [(some(2, 4), 1, 2), (some(3, 4), 2, 3)],
        [(some(2, 4), h, w) for h, w in ((0, 0), (0, 1), (1, 0), (5, 4))],
    ),
    LastTwoOfFour: (
        [tuple(torch.randn(n, 5, 4) for _ in range(4)) for n in (2, 3)],
        [(ones(2, 5, 4), ones(2, 5, 4), TWICE, TWICE)],
    ),
    StepOfAQuarter: (
        [(some(2, 8, 4),), (some(3, 14, 4),)],
        [(some(1, n, 4),) for n in (3, 4, 9, 21)],
    ),
    Pooled: ([(some(2, 3, 6),), (some(3, 3, 8),)], [(torch.full((1, 3, 6), -torch.inf),)]),
}  # fmt: skip


@pytest.mark.sample(11)
@pytest.mark.parametrize("check", [True, False], ids=["checked", "unchecked"])
@pytest.mark.parametrize("make", CASES, ids=lambda make: make.__name__)
def test_it_is_right_or_refused(make: Any, check: bool) -> None:
    sets, later = CASES[make]
    model = make()
    sets = [tuple(one.clone() if isinstance(one, torch.Tensor) else one for one in each)
            for each in sets]  # fmt: skip
    program = tf.export(model, [(args, {}) for args in sets], check=check)
    for args in sets:
        torch.testing.assert_close(program(*args), model(*args))
    for args in later:
        try:
            got = program(*args)
        except FerryError:
            continue
        torch.testing.assert_close(got, model(*args))


def test_a_program_answers_as_itself_whatever_is_saved_over_its_file(tmp_path: Any) -> None:
    sets = [(some(2, 3), some(3, 3)), (some(4, 3), some(5, 3))]
    first = tf.export(Pair(), [(args, {}) for args in sets], check=False)
    path = first.save(tmp_path / "model.onnx")
    tf.export(Identity(), [(args, {}) for args in sets], check=False).save(path)
    torch.testing.assert_close(first(*sets[0]), Pair()(*sets[0]))
    with pytest.raises(FerryError, match="cannot be copied or pickled"):
        copy.deepcopy(first)


def test_a_loaded_program_is_not_saved_with_the_weights_of_another(tmp_path: Any) -> None:
    sets = [((some(n, 3),), {}) for n in (2, 4)]
    path = tf.export(nn.Linear(3, 3), sets, check=False).save(tmp_path / "model.onnx")
    loaded = tf.load(path)
    kept = loaded.save(tmp_path / "kept.onnx")
    again = tf.load(path)
    tf.export(nn.Linear(3, 3), sets, check=False).save(path)
    with pytest.raises(FerryError, match="was replaced since it was loaded"):
        again.save(tmp_path / "mixed.onnx")
    with pytest.raises(FerryError, match="was replaced since it was loaded"):
        loaded.save(tmp_path / "mixed.onnx")
    assert not (tmp_path / "mixed.onnx").exists()
    torch.testing.assert_close(tf.load(kept)(some(5, 3)), again(some(5, 3)))


def test_a_text_of_an_enumeration_is_not_the_text() -> None:
    import enum

    class Mode(enum.StrEnum):
        MEAN = "mean"

    class Reduces(nn.Module):
        def forward(self, x, mode):
            return x.sum() if isinstance(mode, enum.Enum) else x.mean()

    sets = [(some(n, 3), "mean") for n in (2, 4)]
    program = tf.export(Reduces(), [(args, {}) for args in sets])
    torch.testing.assert_close(program(*sets[0]), sets[0][0].mean())
    with pytest.raises(FerryError, match="exported as 'mean'"):
        program(sets[0][0], Mode.MEAN)
