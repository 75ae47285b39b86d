from __future__ import annotations

import math

import torch
from torch import nn

from torchferry.diagnoser.record.tree import Piece, build_tree
from torchferry.diagnoser.record.variant import kind_of, variants
from torchferry.diagnoser.record.widen import main_variant


class Takes(nn.Module):
    def forward(self, x: torch.Tensor, n: object = 1, *, y: torch.Tensor | None = None) -> None:
        """Nothing is run."""


def piece(*calls: tuple[tuple[object, ...], dict[str, object]]) -> Piece:
    made = build_tree(Piece, Takes())
    for args, kwargs in calls:
        made.add_call(args, kwargs, args[0])
    return made


X = torch.zeros(2, 3)


def test_sizes_may_differ_within_a_variant_and_nothing_else() -> None:
    made = piece(
        ((X,), {}),
        ((torch.zeros(5, 3),), {}),
        ((X.double(),), {}),
        ((X[0],), {}),
        ((X, 2), {}),
        ((X, True), {}),
        ((X,), {"y": X}),
    )
    assert [len(v.calls) for v in variants(made)] == [2, 1, 1, 1, 1, 1]
    variant, found = main_variant(made)
    assert [call.args[0].shape[0] for call in variant.calls] == [2, 5]
    assert found.seen.dynamic_names == ("batch_size",)


def test_numbers_may_differ_where_an_operator_takes_them() -> None:
    made = piece(((X, 1), {}), ((X, 2), {}), ((X, 2.0), {}), ((X, "a"), {}), ((X, "b"), {}))
    assert [len(v.calls) for v in variants(made)] == [1, 1, 1, 1, 1]
    assert [len(v.calls) for v in variants(made, numbers=True)] == [2, 1, 1, 1]


def test_how_an_argument_is_passed_makes_no_difference() -> None:
    made = piece(((X, 1), {}), ((X,), {"n": 1}), ((X,), {"n": 1, "y": None}))
    assert [len(v.calls) for v in variants(made)] == [3]
    assert variants(made)[0].example[1].keys() == {"x", "n"}


def test_nan_is_one_constant_and_objects_are_told_apart() -> None:
    assert kind_of(math.nan) == kind_of(float("nan"))
    assert kind_of(1) != kind_of(True)
    first, second = object(), object()
    assert kind_of(first) == kind_of(first) != kind_of(second)
