"""Calls unlike all that was recorded: the exported model is right there, or refuses them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import nn

import torchferry as tf
from torchferry.errors import CaptureError, ConversionError, FerryError
from versions import at_least

Args = tuple[Any, ...]


class Calling(nn.Module):
    """A model whose forward is another function."""

    def __init__(self, function: Callable[..., torch.Tensor]) -> None:
        super().__init__()
        self.function = function

    def forward(self, a: Any, b: Any = None, c: Any = None) -> torch.Tensor:
        given = [one for one in (a, b, c) if one is not None]
        return self.function(*given)


@dataclass(frozen=True)
class Case:
    """A model, what is recorded of it, and calls that must be right, or refused.

    Attributes:
        changes: whether some versions of PyTorch export it so that what others refuse is right.
    """

    function: Callable[..., torch.Tensor]
    sets: tuple[Args, ...]
    right: tuple[Args, ...] = ()
    refused: tuple[Args, ...] = ()
    changes: bool = False


def some(*sizes: int) -> torch.Tensor:
    return torch.randn(sizes, generator=torch.Generator().manual_seed(sum(sizes)))


def zeros(*sizes: int) -> torch.Tensor:
    return torch.zeros(sizes)


def ids(rows: int) -> torch.Tensor:
    return torch.arange(rows * 3).reshape(rows, 3) % 7 + 1


def masked(x: torch.Tensor) -> torch.Tensor:
    if x.shape[0] > 1:
        x = x + torch.full_like(x, -torch.inf).triu(x.shape[1])
    return x.softmax(-1)


def window(x: torch.Tensor, past: torch.Tensor) -> torch.Tensor:
    """A decoder's step of one token sees no more than the last eight."""
    if x.shape[0] == 1 and past.shape[0] > 12:
        past = past[-7:]
    return torch.cat([past, x])


def biased(q: torch.Tensor, k: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    scores = q @ k.T
    if q.shape[0] != 1:
        scores = scores + bias
    return scores.softmax(-1)


def without_padding(ids: torch.Tensor) -> torch.Tensor:
    embedded = nn.functional.embedding(ids, torch.arange(40.0).reshape(10, 4) + 1)
    if ids.shape[0] != 1:
        embedded = embedded * (ids != 0)[..., None]
    return embedded


def limited(x: torch.Tensor) -> torch.Tensor:
    if x.shape[0] != 1:
        x = x.clamp(-1e4, 1e4)
    return x * 2


def sliced(x: torch.Tensor, past: torch.Tensor) -> torch.Tensor:
    if x.shape[0] > 1:
        past = past[-16:]
    return x + past.sum(0)


def every_fourth(x: torch.Tensor) -> torch.Tensor:
    return x.sum(0) if x[::4].shape[0] == 1 else x[::4].sum(0)


def squared_patches(x: torch.Tensor) -> torch.Tensor:
    side = int(x.shape[0] ** 0.5)
    return x[: side * side].reshape(side, side, -1).sum(1)


def padded(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return nn.utils.rnn.pad_sequence([a, b], batch_first=True)


def writes_to_copy(x: torch.Tensor) -> torch.Tensor:
    """Where there is one row, or one column, the copy is no copy."""
    x = x * 1
    x.t().contiguous().add_(5)
    return x


def writes_to_view(x: torch.Tensor) -> torch.Tensor:
    x = x * 1
    x.reshape(-1).add_(5)
    return x


LAYERS = nn.ModuleDict({"lstm": nn.LSTM(4, 3, bidirectional=True), "gru": nn.GRU(4, 3)})


CASES = {
    # Other code at a size of 1 may do anything for other values and other sizes.
    "infinities": Case(
        lambda x: x.softmax(-1) if x.shape[-1] != 1 else torch.ones_like(x),
        ((some(6, 4),), (some(9, 5),)),
        right=((some(1, 7),),),
        refused=((some(3, 1) / 0,),),
    ),
    "mask of zeros": Case(
        lambda q, k, b: ((q @ k.T + b) if q.shape[0] != 1 else q @ k.T).softmax(-1),
        ((some(3, 4), some(5, 4), zeros(5)), (some(4, 4), some(6, 4), zeros(6))),
        right=((some(7, 4), some(8, 4), some(8)),),
        refused=((some(1, 4), some(5, 4), some(5)),),
    ),
    "a branch in a branch": Case(window, ((some(3, 2), some(5, 2)), (some(2, 2), some(6, 2))),
        right=((some(4, 2), some(30, 2)),),
        refused=((some(1, 2), some(20, 2)),),
    ),
    "a slice that cuts nothing": Case(sliced, ((some(3, 2), some(5, 2)), (some(2, 2), some(6, 2))),
        right=((some(4, 2), some(30, 2)),),
        refused=((some(1, 2), some(50, 2)),),
    ),
    "size of a slice": Case(every_fourth, ((some(6, 4),), (some(9, 5),)),
        right=((some(7, 4),),),
        refused=((some(2, 4),), (some(4, 4),)),
    ),
    # Less code, that does nothing to what was recorded.
    "a bias of zeros": Case(
        biased, ((some(3, 4), some(5, 4), zeros(5)), (some(4, 4), some(6, 4), zeros(6))),
        right=((some(7, 4), some(8, 4), some(8)),),
        refused=((some(1, 4), some(5, 4), some(5)),),
    ),
    "no padding": Case(without_padding, ((ids(3),), (ids(5),)),
        right=((ids(4) * 0,),),
        refused=((ids(1) * 0,),),
    ),
    "no large number": Case(limited, ((some(6, 4),), (some(9, 4),)),
        right=((some(3, 4) * 1e6,),),
        refused=((some(1, 4) * 1e6,),),
    ),
    "less code for the same": Case(masked, ((some(3, 3),), (some(4, 4),)),
        right=((some(1, 1),), (some(9, 9),)),
    ),
    # torch decides of sizes when it takes an operator apart.
    "the longer one": Case(padded, ((some(3, 2), some(5, 2)), (some(4, 2), some(9, 2))),
        right=((some(2, 2), some(6, 2)),),
        refused=((some(6, 2), some(4, 2)),),
        changes=True,
    ),
    "a root of a size": Case(squared_patches, ((some(9, 4),), (some(10, 4),)),
        right=((some(12, 4),), (some(16, 4),), (some(4, 4),)),
    ),
    "a copy at most sizes": Case(writes_to_copy, ((some(6, 4),), (some(9, 5),)),
        right=((some(3, 7),),),
        refused=((some(1, 4),), (some(7, 1),), (some(1, 1),)),
    ),
    "a view at every size": Case(writes_to_view, ((some(6, 4),), (some(9, 5),)),
        right=((some(3, 7),), (some(1, 4),), (some(7, 1),)),
    ),
    # onnxruntime ends the process.
    "an empty batch for an LSTM": Case(
        lambda x: LAYERS["lstm"](x[:, 1:])[0], ((some(5, 3, 4),), (some(6, 4, 4),)),
        right=((some(3, 2, 4),),),
        refused=((some(5, 1, 4),), (some(3, 0, 4),)),
    ),
    "an empty batch for a GRU": Case(
        lambda x: LAYERS["gru"](x[2:])[0], ((some(5, 3, 4),), (some(6, 2, 4),)),
        right=((some(3, 1, 4),),),
        refused=((some(5, 0, 4),), (some(2, 3, 4),)),
    ),
    # Arguments.
    "layout of a view": Case(
        lambda x: x * 2 if x.T.is_contiguous() else x * 3, ((some(6, 4),), (some(9, 4),)),
        right=((some(3, 4),),),
        refused=((some(4, 6).T,),),
    ),
    "one scalar twice": Case(
        lambda a, b: a * 2 if a is b else a * 3,
        ((torch.tensor(2.0), torch.tensor(5.0)), (torch.tensor(4.0), torch.tensor(7.0))),
        right=((torch.tensor(3.0), torch.tensor(3.0)),),
        refused=((torch.ones(()),) * 2,),
    ),
    "the sign of a zero": Case(
        lambda x, s: x / s, ((some(6, 4), 0.0), (some(9, 4), 0.0)),
        right=((some(3, 4), 0.0),),
        refused=((some(3, 4), -0.0),),
    ),
    "a key that equals another": Case(
        lambda d: sum(v * (2 if key is True else 3) for key, v in d.items()),
        (({1: some(3)},), ({1: some(5)},)),
        right=(({1: some(4)},),),
        refused=(({True: some(4)},),),
    ),
    "a negative factor": Case(
        lambda x, k: x * (k if k > 1 else 1), ((some(3), 2), (some(4), 3)),
        right=((some(5), 7), (some(1), 2)),
        refused=((some(5), -1), (some(5), -3), (some(5), 0)),
    ),
    "places counted from the end": Case(
        lambda x: x[torch.arange(x.shape[0] - 5, x.shape[0])], ((some(7, 2),), (some(9, 2),)),
        right=((some(4, 2),), (some(5, 2),)),
        refused=((some(2, 2),),),
    ),
    "a count down": Case(
        lambda x: x[torch.arange(x.shape[0] - 1, -1, -1)], ((some(7, 2),), (some(9, 2),)),
        right=((some(4, 2),), (some(12, 2),)),
    ),
    "a half before an integer": Case(
        lambda x: (x.half().to(torch.int8), x.to(torch.int64).to(torch.int32)),
        ((torch.full((3,), 0.9999),), (torch.full((4,), 2.0**33 + 4096),)),
        right=((torch.full((5,), 0.9999),), (torch.full((2,), 2.0**33 + 4096),)),
    ),
    "a quotient of sizes": Case(
        lambda x, y: (y.repeat(r) if (r := x.shape[0] // y.shape[0]) > 1 else y) * 2,
        ((some(8), some(4)), (some(12), some(6))),
        right=((some(6), some(3)), (some(2), some(1))),
        refused=((some(4), some(5)), (some(1), some(7))),
    ),
    # A view of the same shape is the input itself, whose sizes keep their names.
    "sizes that must be equal": Case(
        lambda x, y: x.view(-1, x.shape[-1]) + torch.arange(x.shape[0])[:, None] + y,
        ((some(3, 4), some(3, 4)), (some(5, 4), some(5, 4))),
        right=((some(7, 4), some(7, 4)),),
        refused=((some(6, 4), some(5, 4)),),
    ),
}  # fmt: skip


def outcome(program: Any, args: Args) -> tuple[Any, FerryError | None]:
    """The result of a call, or its refusal."""
    try:
        return program(*args), None
    except FerryError as refusal:
        return None, refusal


@pytest.mark.sample(13)
@pytest.mark.parametrize("check", [True, False], ids=["checked", "unchecked"])
@pytest.mark.parametrize("name", CASES)
def test_it_is_right_or_refused(name: str, check: bool) -> None:
    case = CASES[name]
    if name == "an empty batch for a GRU" and not at_least("torch", "2.12"):
        pytest.skip("the size of a slice depends on data for this torch")
    model = Calling(case.function).eval()
    program = tf.export(model, [(args, {}) for args in case.sets], check=check, budget=10)
    for args in case.right:
        with torch.no_grad():
            torch.testing.assert_close(program(*args), model(*args), rtol=1e-4, atol=1e-5)
    for args in case.refused:
        found, refusal = outcome(program, args)
        if refusal is not None:
            assert len(str(refusal)) > 40
            continue
        assert case.changes
        torch.testing.assert_close(found, model(*args), rtol=1e-4, atol=1e-5)


def test_a_recorded_call_that_runs_other_code_is_a_problem_with_its_line() -> None:
    function = CASES["a branch in a branch"].function
    sets = [((some(n, 2), some(m, 2)), {}) for n, m in ((3, 5), (2, 6), (1, 7))]
    model = Calling(lambda x, y: function(x, y) if x.shape[0] == 1 else torch.cat([y, x]))
    report = tf.export(model.eval(), sets, budget=10).report
    assert not report.ok
    assert "the recorded input sets take different branches" in str(report.problems)
    assert "test_unlike_calls.py" in str(report.problems)


class Scaled(nn.Module):
    def forward(self, x: torch.Tensor, scale: float | None = 2.0) -> torch.Tensor:
        return x - 1 if scale is None else x * scale


def test_none_that_is_not_the_default_must_be_given() -> None:
    program = tf.export(Scaled(), [((some(n, 4),), {"scale": None}) for n in (6, 9)], check=False)
    torch.testing.assert_close(program(some(3, 4), scale=None), some(3, 4) - 1)
    for given in ({}, {"scale": 2.0}):
        with pytest.raises(FerryError, match=r"argument scale .* exported as None"):
            program(some(3, 4), **given)


class Flagged(nn.Module):
    def forward(self, x: torch.Tensor, **named: Any) -> torch.Tensor:
        return x * (2 if "flag" in named else 3)


def test_a_refused_call_is_no_excuse_for_the_next() -> None:
    program = tf.export(Flagged(), [((some(n, 4),), {}) for n in (6, 9)], check=False)
    for value in (3, None, None):
        with pytest.raises(FerryError, match="flag"):
            program(some(3, 4), flag=value)
    torch.testing.assert_close(program(some(3, 4)), some(3, 4) * 3)


class Overflowing(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (x.half() * 300 * 300).float()


def test_a_number_does_not_stand_for_an_infinity() -> None:
    report = tf.export(Overflowing().eval(), [((some(n, 4),), {}) for n in (6, 9)]).report
    assert not report.ok


class Fixing(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * len(repr(x.shape))


def test_a_recorded_call_of_another_fixed_size_leaves_the_first_right() -> None:
    program = tf.export(Fixing(), [((some(n, 4),), {}) for n in (6, 9)], check=False)
    torch.testing.assert_close(program(some(6, 4)), Fixing()(some(6, 4)))
    with pytest.raises(FerryError, match="9x4"):
        program(some(9, 4))


class Repeating(nn.Module):
    def forward(self, x: torch.Tensor, times: int) -> torch.Tensor:
        for number in range(times):
            x = x * 1.5 + number
        return x


@pytest.mark.parametrize("check", [True, False])
def test_a_recorded_call_of_another_fixed_integer_leaves_the_first_right(check: bool) -> None:
    sets = [((some(n, 4), times), {}) for n, times in ((6, 2), (9, 3))]
    program = tf.export(Repeating().eval(), sets, check=check, rewrite=False)
    assert "integer times was fixed to 2" in str(program.report.problems)
    torch.testing.assert_close(program(some(5, 4), 2), Repeating()(some(5, 4), 2))
    with pytest.raises(FerryError, match="times was exported as 2 and cannot be 3"):
        program(some(9, 4), 3)


class TwoCaches(nn.Module):
    def forward(self, x: torch.Tensor, cache: Any = None, past_key_values: Any = None) -> Any:
        return x * 2 if cache is None else x + past_key_values


class Jacobian(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.func.jacrev(lambda t: t.sin().sum(0))(x)


@pytest.mark.parametrize(
    ("model", "words"), [(TwoCaches(), "has both arguments"), (Jacobian(), "torch.func")]
)
def test_what_cannot_be_told_is_refused_by_name(model: nn.Module, words: str) -> None:
    with pytest.raises(
        (CaptureError, ConversionError), match=words
    ):  # torch 2.12 does not trace it
        tf.export(model.eval(), [((some(n, 4),), {}) for n in (6, 9)], check=False)
