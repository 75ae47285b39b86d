from __future__ import annotations

import itertools

import pytest
import torch
from torch import nn

from torchferry.diagnoser.comparison import (
    baked,
    changing_line,
    difference,
    is_random,
    is_rounding,
    repeats,
)
from torchferry.diagnoser.option import Options
from torchferry.diagnoser.recorder import recorded
from torchferry.diagnoser.tree import Piece, build_tree


def piece_of(model: nn.Module, dtype: torch.dtype = torch.float32) -> Piece:
    piece = build_tree(Piece, model)
    with recorded(piece), torch.no_grad():
        model(torch.rand(3, 4).to(dtype))
    return piece


class Steps(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.steps = itertools.count()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + next(self.steps)


@pytest.mark.parametrize(
    ("dtype", "off", "equal"),
    [
        (torch.float32, 1e-6, True),
        (torch.float32, 1e-2, False),
        (torch.float64, 1e-6, False),
        (torch.bfloat16, 1e-2, True),
        (torch.bfloat16, 0.5, False),
        (torch.int64, 1, False),
    ],
)
def test_the_dtype_says_what_is_none(dtype: torch.dtype, off: float, equal: bool) -> None:
    piece = piece_of(nn.ReLU(), dtype)
    x = torch.ones(3, dtype=dtype)
    assert (difference(piece, [x], [(x + off).to(dtype)], Options()) is None) == equal


def test_a_model_in_half_precision_may_give_float32() -> None:
    x = torch.ones(3)
    assert difference(piece_of(nn.ReLU()), x, x + 1e-3, Options()) is not None
    half = piece_of(nn.Linear(4, 4).to(torch.float16), torch.float16)
    assert difference(half, x, x + 1e-3, Options()) is None


def test_limits_that_are_given_hold_alone() -> None:
    piece, x = piece_of(nn.ReLU()), torch.full((3,), 100.0)
    for options in (Options(atol=2.0), Options(rtol=0.1), Options(atol=2.0, rtol=0.1)):
        assert difference(piece, x, x + 1, options) is None
    for options in (Options(atol=0.5), Options(rtol=1e-3), Options(atol=2.0, rtol=1e-3)):
        assert difference(piece, x, x + 1, options) is not None


def test_what_cannot_be_compared_differs() -> None:
    piece, x = piece_of(nn.ReLU()), torch.ones(3)
    options = Options(atol=9.0, rtol=9.0)
    for other in (x[:2], x.double(), [x], torch.tensor([1.0, float("nan"), 1.0]), None):
        assert difference(piece, x, other, options) is not None
    assert difference(piece, {"x": x, "n": 2}, {"x": x, "n": 3}, Options()) is not None
    nan = torch.tensor([float("nan")])
    assert difference(piece, nan, nan, Options()) is None


def test_a_piece_repeats_itself_or_says_why_not() -> None:
    piece = piece_of(nn.Linear(4, 4))
    assert repeats(piece, piece.calls[0], Options())
    assert baked(piece, piece.calls[0], Options()) == ""
    assert changing_line(piece, piece.calls[0]) is None
    piece = piece_of(Steps())
    assert not repeats(piece, piece.calls[0], Options())
    assert "clock" in baked(piece, piece.calls[0], Options())
    assert str(changing_line(piece, piece.calls[0])).startswith(f"{__file__}:")


def test_random_numbers_of_torch_are_told_from_other_differences() -> None:
    model = nn.Dropout(0.5)
    piece = piece_of(model)
    call = piece.calls[0]
    assert baked(piece, call, Options()) == ""
    # Draws as the module, draws elsewhere, and is wrong besides.
    assert is_random(piece, call, lambda c: model(*c.args), Options(), flat=False)
    assert is_random(
        piece, call, lambda c: [torch.rand(1).sum() * 0 + model(*c.args)], Options(), flat=True
    )
    assert not is_random(piece, call, lambda c: model(*c.args) + 99, Options(), flat=False)
    assert is_random(piece, call, lambda c: model(*c.args), Options(), flat=False, alike=True)
    assert not is_random(
        piece,
        call,
        lambda c: torch.rand(1) * 0 + model(*c.args),
        Options(),
        flat=False,
        alike=True,
    )


def test_the_state_of_torchs_random_numbers_is_kept() -> None:
    piece = piece_of(nn.Dropout(0.5))
    torch.manual_seed(7)
    before = torch.random.get_rng_state()
    repeats(piece, piece.calls[0], Options())
    baked(piece, piece.calls[0], Options())
    assert torch.equal(before, torch.random.get_rng_state())


def test_what_is_rounded_on_the_way_is_allowed_for() -> None:
    class Mixed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(4, 4)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            with torch.autocast("cpu", dtype=torch.bfloat16):
                y = self.linear(x)
            return y.float()

    piece = piece_of(Mixed())
    call = piece.calls[0]
    for share, same in ((4e-3, True), (0.2, False)):
        got = call.outputs * (1 + share)
        assert difference(piece, call.outputs, got, Options()) is not None
        assert is_rounding(piece, call, got, Options(), flat=False) == same
    plain = piece_of(nn.Linear(4, 4))
    got = plain.calls[0].outputs * 1.004
    assert not is_rounding(plain, plain.calls[0], got, Options(), flat=False)


def test_a_difference_of_rounding_is_told_from_others() -> None:
    class Cancels(nn.Module):
        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            return (x + 1) - x - 1, x

    piece = piece_of(Cancels())
    call = piece.calls[0]
    left, x = call.outputs
    for off, same in ((2e-7, True), (1e-3, False)):
        got = (left + off, x)
        assert difference(piece, call.outputs, got, Options()) is not None
        assert is_rounding(piece, call, got, Options(), flat=False) == same
        assert is_rounding(piece, call, [*got], Options(), flat=True) == same
    assert not is_rounding(piece, call, (left + 2e-7, x), Options(atol=0.0), flat=False)
    assert not is_rounding(piece, call, (left, x * 1.01), Options(), flat=False)
    assert not is_rounding(piece, call, (left, x.double()), Options(), flat=False)
