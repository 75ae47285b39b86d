from __future__ import annotations

import torch
from torch import nn

from torchferry.diagnoser.record.tree import Piece, build_tree
from torchferry.diagnoser.record.variant import variants
from torchferry.diagnoser.record.widen import main_variant, widened


class Masked(nn.Module):
    def forward(self, x: torch.Tensor, mask: torch.Tensor | None = None) -> torch.Tensor:
        return x if mask is None else x.masked_fill(mask[:, 0, 0, :, None], 0.0)


def piece(*calls: tuple[torch.Tensor, torch.Tensor | None]) -> Piece:
    made = build_tree(Piece, Masked())
    for call in calls:
        made.add_call(call, {}, call[0])
    return made


def test_what_varies_between_kinds_of_calls_varies_within_each() -> None:
    mask = torch.zeros(2, 1, 14, 14, dtype=torch.bool)
    made = piece((torch.rand(3, 9, 8), None), (torch.rand(2, 14, 8), mask))
    without, with_mask = variants(made)
    found = widened(made, without)
    assert len(found.seen.calls) == 2
    assert found.guessed == frozenset()
    assert [str(a.size) for a in found.seen.arguments[0].axes] == ["batch_size", "x_dim_1", "8"]
    found = widened(made, with_mask)
    assert found.guessed == {("mask", 0), ("mask", 2), ("mask", 3)}
    sizes = [[str(axis.size) for axis in argument.axes] for argument in found.seen.arguments]
    assert sizes == [["batch_size", "x_dim_1", "8"], ["batch_size", "1", "x_dim_1", "x_dim_1"]]
    made.model(*found.seen.calls[1].args, **found.seen.calls[1].kwargs)  # it fits together


def test_several_calls_of_a_kind_speak_for_themselves() -> None:
    made = piece((torch.rand(3, 9, 8), None), (torch.rand(2, 9, 8), None))
    variant, found = main_variant(made)
    assert len(variant.calls) == len(found.seen.calls) == 2
    assert found.guessed == frozenset()


def test_calls_that_have_nothing_in_common_say_nothing() -> None:
    made = piece((torch.rand(3, 9), None), (torch.rand(2, 9, 8), None))
    assert len(main_variant(made)[1].seen.calls) == 1


class Grid(nn.Module):
    """Rows belong to two numbers that are passed beside them."""

    def forward(self, x: torch.Tensor, height: int, width: int) -> torch.Tensor:
        return x.view(x.shape[0], height, width, -1).sum(3)


def test_a_size_that_belongs_to_a_number_stays_as_it_is() -> None:
    made = build_tree(Piece, Grid())
    made.add_call((torch.rand(2, 6, 5), 2, 3), {}, None)
    made.add_call((torch.rand(3, 20, 5), 4, 5), {}, None)
    variant, found = main_variant(made)
    assert len(variant.calls) == 1
    sets = [found.seen.normalized(call) for call in found.seen.calls]
    shapes = [
        tuple(kwargs["x"].shape) if kwargs else tuple(args[0].shape) for args, kwargs in sets
    ]
    assert shapes == [(2, 6, 5), (5, 6, 5)]
    assert found.made is not None
    assert found.made.outputs.shape == (5, 2, 3)


class Picky(nn.Module):
    """Takes no other sizes than those that were recorded."""

    def forward(self, x: torch.Tensor, mask: torch.Tensor | None = None) -> torch.Tensor:
        if len(x) not in (2, 3):
            raise RuntimeError("takes 2 or 3 rows")
        return x if mask is None else x * mask


def test_sizes_that_the_piece_refuses_are_not_made_up() -> None:
    made = build_tree(Piece, Picky())
    made.add_call((torch.rand(2, 4), None), {}, None)
    made.add_call((torch.rand(3, 4), torch.rand(3, 4)), {}, None)
    _, found = main_variant(made)
    assert (len(found.seen.calls), found.made) == (1, None)


def test_what_a_made_up_call_writes_into_buffers_is_taken_back() -> None:
    class Counts(Masked):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("count", torch.zeros(()))

        def forward(self, x: torch.Tensor, mask: torch.Tensor | None = None) -> torch.Tensor:
            self.count += 1
            return super().forward(x, mask)

    made = build_tree(Piece, Counts())
    mask = torch.zeros(2, 1, 14, 14, dtype=torch.bool)
    for call in ((torch.rand(3, 9, 8), None), (torch.rand(2, 14, 8), mask)):
        made.add_call(call, {}, None)
    assert main_variant(made)[1].made is not None
    assert made.model.count == 0
