from __future__ import annotations

import torch
from torch import nn

from torchferry.diagnoser.tree import Piece, build_tree
from torchferry.diagnoser.variant import variants
from torchferry.diagnoser.widen import main_variant, widened


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
