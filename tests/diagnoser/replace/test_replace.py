from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import torch
from torch import nn

from torchferry.diagnoser.record.recorder import recorded
from torchferry.diagnoser.record.tree import Piece, build_tree
from torchferry.diagnoser.record.variant import variants
from torchferry.diagnoser.replace.replace import StandIn, replaced, shape_rule
from torchferry.errors import UsageError
from torchferry.values import make_dynamic_cache, max_diff


@dataclasses.dataclass
class Pair:
    first: torch.Tensor
    count: int
    second: torch.Tensor | None = None


class Star(nn.Module):
    def forward(self, *xs: torch.Tensor, scale: float = 1.0, **named: torch.Tensor) -> Pair:
        return Pair(torch.cat(xs, 1) * scale + named["bias"], 3, xs[0].sum(1))


class Cached(nn.Module):
    def forward(self, x: torch.Tensor, cache: Any, seen: torch.Tensor) -> torch.Tensor:
        keys, values = cache.update(x, x * 2, 0)
        seen.add_(1)
        return keys.sum(2) + values.sum(2)


class Positive(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x[x > 0]


def recorded_piece(model: nn.Module, *calls: tuple[tuple[Any, ...], dict[str, Any]]) -> Piece:
    piece = build_tree(Piece, model)
    with recorded(piece), torch.no_grad():
        for args, kwargs in calls:
            model(*args, **kwargs)
    return piece


def test_stars_and_dataclasses_pass_through() -> None:
    calls = [
        ((torch.rand(n, 2), torch.rand(n, 2)), {"scale": 2.0, "bias": torch.rand(n, 1)})
        for n in (2, 5)
    ]
    piece = recorded_piece(Star(), *calls)
    args, kwargs = (torch.rand(7, 2), torch.rand(7, 2)), {"scale": 3.0, "bias": torch.rand(7, 1)}
    expected = piece.model(*args, **kwargs)
    with StandIn(piece).in_place():
        got = piece.model(*args, **kwargs)
    assert type(got) is Pair
    assert max_diff(expected, got).abs == 0
    assert max_diff(expected, got).reason is None
    assert "forward" not in vars(piece.model)


def test_a_cache_grows_and_a_tensor_is_written_as_by_the_module() -> None:
    def arguments(n: int) -> tuple[torch.Tensor, Any, torch.Tensor]:
        past = torch.rand(n, 2, n + 1, 4)
        return torch.rand(n, 2, 3, 4), make_dynamic_cache([(past, past)]), torch.zeros(3)

    piece = recorded_piece(Cached(), *((arguments(n), {}) for n in (2, 5)))
    x, cache, seen = arguments(4)
    same = make_dynamic_cache([(cache.layers[0].keys, cache.layers[0].values)])
    counted = torch.zeros(3)
    expected = piece.model(x, same, counted)
    with replaced([StandIn(piece)]):
        got = piece.model(x, cache, seen)
    assert torch.equal(expected, got)
    assert max_diff(same, cache).abs == 0
    assert cache.layers[0].keys.shape == (4, 2, 8, 4)
    assert torch.equal(seen, counted)


def test_calls_of_other_forms_have_operators_of_their_own() -> None:
    class Times(nn.Module):
        def forward(self, x: torch.Tensor, n: Any) -> torch.Tensor:
            return x * (n or 1)

    calls = [((torch.rand(2), 2), {}), ((torch.rand(2), None), {}), ((torch.rand(2, 2), 0.5), {})]
    piece = recorded_piece(Times(), *calls)
    stand_in = StandIn(piece)
    assert len(stand_in.operators) == 3
    x = torch.rand(2)
    assert torch.equal(stand_in(x, 5), x * 5)
    assert torch.equal(stand_in(x, n=None), x)
    with pytest.raises(UsageError, match="not recorded"):
        stand_in(x, "5")


def test_modules_are_restored_after_an_exception() -> None:
    piece = recorded_piece(nn.ReLU(), ((torch.ones(2),), {}))
    own = piece.model.forward
    vars(piece.model)["forward"] = own

    def interrupted() -> None:
        with replaced([StandIn(piece)]):
            assert piece.model.forward is not own
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert vars(piece.model)["forward"] is own


CALLS = [((torch.arange(-4.0, n).reshape(-1, 1),), {}) for n in (2, 5)]


@pytest.mark.parametrize("key", [Positive, "Positive", "C_Positive", "__main__"])
@pytest.mark.parametrize(
    "function",
    [
        {0: lambda x: (x.shape[0] - 5,)},
        {0: lambda x: x.new_empty(x.shape[0] - 5)},
        lambda number, x: (x.shape[0] - 5 + number,),
    ],
)
def test_shapes_that_depend_on_values_are_asked_for(key: Any, function: Any) -> None:
    piece = recorded_piece(Positive(), ((torch.randn(20, 2),), {}), ((torch.randn(30, 2),), {}))
    with pytest.raises(UsageError, match=r"(?s)__main__:Positive .*axis 0 .*shape_functions"):
        StandIn(piece)
    rule = shape_rule(piece, variants(piece)[0], {key: function})
    assert tuple(rule([torch.zeros(9, 2)], 0)) == (4,)


def test_a_function_that_does_not_know_leaves_it_to_us() -> None:
    piece = recorded_piece(nn.ReLU(), *CALLS)
    rule = shape_rule(piece, variants(piece)[0], {"ReLU": lambda number, x: None})
    assert tuple(rule([torch.zeros(9, 1)], 0)) == (9, 1)


def test_outputs_that_are_constants_must_be_so_in_every_call() -> None:
    class Counts(nn.Module):
        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, int]:
            return x, x.shape[0]

    with pytest.raises(UsageError, match="returns in one call"):
        StandIn(recorded_piece(Counts(), *CALLS))
    with pytest.raises(UsageError, match="never called"):
        StandIn(build_tree(Piece, Counts()))
