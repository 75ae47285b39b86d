from __future__ import annotations

import torch
from torch import nn

from torchferry.diagnoser.record.probe import output_leaves, probe
from torchferry.diagnoser.record.recorder import recorded
from torchferry.diagnoser.record.tree import Piece, build_tree
from torchferry.diagnoser.record.variant import variants


class Counts(nn.Module):
    """Takes no batch of 6, and changes a buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("seen", torch.zeros(()))

    def forward(self, x: torch.Tensor, n: int) -> torch.Tensor:
        if x.shape[0] == 6:
            raise ValueError("six")
        self.seen.add_(float(x.sum() < 1e30))
        return x.repeat(1, n)


def recorded_piece(model: nn.Module, *calls: tuple[object, ...]) -> Piece:
    piece = build_tree(Piece, model)
    with recorded(piece), torch.no_grad():
        for call in calls:
            model(*call)
    return piece


def test_more_sizes_are_tried_and_the_module_is_as_before() -> None:
    piece = recorded_piece(Counts(), (torch.rand(2, 3), 2), (torch.rand(3, 3), 2))
    rows = probe(piece, variants(piece, numbers=True)[0])
    shapes = [row.outputs[0] for row in rows]
    assert shapes[:2] == [(2, 6), (3, 6)]
    assert (5, 6) in shapes  # tried
    assert (6, 6) not in shapes  # refused by the code
    assert len(rows) >= 5
    assert piece.model.seen.item() == 2
    assert len(piece.calls) == 2


def test_static_calls_are_all_there_is() -> None:
    piece = recorded_piece(Counts(), (torch.rand(2, 3), 2))
    assert len(probe(piece, variants(piece, numbers=True)[0])) == 1


def test_what_a_call_leaves_behind_comes_after_its_outputs() -> None:
    class Writes(nn.Module):
        def forward(self, x: torch.Tensor, found: list[torch.Tensor]) -> tuple[torch.Tensor, int]:
            found.append(x * 2)
            return x, 3

    piece = recorded_piece(Writes(), (torch.ones(2), []))
    assert [leaf.tolist() for leaf in output_leaves(piece.calls[0])] == [[1, 1], [2, 2]]


class Totals(nn.Module):
    """Changes a buffer and an attribute, fake tensors or not."""

    def __init__(self) -> None:
        super().__init__()
        self.calls = 0
        self.register_buffer("total", torch.zeros(()))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        self.total += 1
        return x * self.total


def test_what_fake_tensors_write_is_not_kept() -> None:
    model = Totals()
    piece = recorded_piece(model, (torch.rand(2, 4),), (torch.rand(5, 4),))
    before = model.calls, model.total.item()
    assert len(probe(piece, variants(piece)[0])) > 2
    assert (model.calls, model.total.item()) == before
