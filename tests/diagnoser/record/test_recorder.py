from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from torchferry.diagnoser.record.recorder import recorded
from torchferry.diagnoser.record.tree import Piece, build_tree
from torchferry.values import make_dynamic_cache


class InPlace(nn.Module):
    def forward(self, x: torch.Tensor, cache: Any) -> torch.Tensor:
        x.add_(1)
        cache.update(x, x, 0)
        return x


def test_calls_are_recorded_with_copies_and_modules_left_as_they_were(layers: nn.Module) -> None:
    root = build_tree(Piece, layers)
    x = torch.ones(3, 2)
    with recorded(root):
        outputs = layers(x)
    x.zero_()
    outputs.detach().zero_()
    assert [len(p.calls) for p in root.walk()] == [1, 2, 1, 1, 0]
    assert torch.equal(root.inputs[0][0][0], torch.ones(3, 2))
    assert root.outputs[0].abs().sum() > 0
    assert "forward" not in {name for m in layers.modules() for name in vars(m)}


def test_modules_are_left_as_they_were_after_an_interruption(layers: nn.Module) -> None:
    cond = torch.cond

    def interrupted() -> None:
        with recorded(build_tree(Piece, layers)):
            assert torch.cond is not cond
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert torch.cond is cond
    assert "forward" not in {name for m in layers.modules() for name in vars(m)}


def test_what_a_call_writes_is_recorded_and_inputs_are_from_before() -> None:
    root = build_tree(Piece, InPlace())
    cache = make_dynamic_cache([(torch.zeros(1, 2, 3, 4), torch.zeros(1, 2, 3, 4))])
    with recorded(root):
        root.model(torch.zeros(1, 2, 1, 4), cache)
    (call,) = root.calls
    assert torch.equal(call.args[0], torch.zeros(1, 2, 1, 4))
    assert call.args[1].layers[0].keys.shape == (1, 2, 3, 4)
    assert call.mutation is not None
    written = [(path, None if v is None else tuple(v.shape)) for path, v in call.mutation.leaves]
    assert written[0] == ((1, "x"), (1, 2, 1, 4))  # where it was, with what it is now
    assert {shape for path, shape in written[1:] if path is None} == {(1, 2, 4, 4)}


def test_a_call_that_writes_nothing_has_no_mutation() -> None:
    root = build_tree(Piece, nn.ReLU())
    with recorded(root):
        root.model(torch.zeros(2))
    assert root.calls[0].mutation is None


def test_calls_inside_cond_are_seen() -> None:
    class Chooses(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.yes, self.no = nn.ReLU(), nn.Tanh()

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.cond(x.sum() > 0, self.yes, self.no, (x,))

    root = build_tree(Piece, Chooses())
    with recorded(root):
        root.model(torch.ones(2))
    assert [(p.name, len(p.calls)) for p in root.children] == [("yes", 1), ("no", 0)]


def test_a_piece_knows_what_its_own_code_calls_and_how_it_is_entered() -> None:
    shared = nn.ReLU()
    root = build_tree(Piece, nn.Sequential(nn.Sequential(shared), nn.Sequential(shared)))
    with recorded(root):
        root.model(torch.ones(2))
    first, second = root.children
    assert (first.callees, second.callees) == ([first.children[0]], [first.children[0]])
    assert (root.callees, root.entry) == ([first, second], "forward")


def test_with_hooks_the_whole_call_is_recorded_and_nothing_stays() -> None:
    model = nn.Linear(4, 4)
    model.register_forward_pre_hook(lambda _, args: (args[0] + 1,))
    model.register_forward_hook(lambda _, args, out: out * 2)
    piece = build_tree(Piece, nn.Sequential(model))
    x = torch.rand(2, 4)
    with recorded(piece), torch.no_grad():
        expected = piece.model(x)
    (call,) = piece.children[0].calls
    assert torch.equal(call.args[0], x)
    assert torch.equal(call.outputs, expected)
    assert "_call_impl" not in vars(model)


class Doubled(torch.nn.Module):
    """Writes into what its first part returned, in a way that leaves the version as it was."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.third = (torch.nn.Linear(3, 3) for _ in range(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.second(self.first(x))
        y.data.mul_(2)
        return self.third(y)


def test_what_one_module_returns_and_the_next_takes_is_copied_once() -> None:
    model = Doubled()
    root = build_tree(Piece, model)
    x = torch.randn(2, 3)
    with recorded(root), torch.no_grad():
        expected = model(x)
    first, second, third = (piece.calls[0] for piece in root.children)
    assert second.args[0] is first.outputs
    assert first.args[0] is root.calls[0].args[0] is not x
    assert root.calls[0].outputs is third.outputs is not expected
    assert third.args[0] is not second.outputs
    torch.testing.assert_close(third.args[0], 2 * second.outputs)
    x.zero_()
    torch.testing.assert_close(model.first(first.args[0]), first.outputs)


class Grows(torch.nn.Module):
    """Keeps its results in memory of its own, which it makes larger and whose address it knows."""

    def __init__(self) -> None:
        super().__init__()
        self.space = torch.empty(0)
        self.kept = torch.zeros(4)
        self.address = self.kept.data_ptr()
        self.linear, self.act = torch.nn.Linear(4, 4), torch.nn.ReLU()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        made = torch.matmul(self.linear(x), x.t(), out=self.space.resize_(0))
        self.kept.fill_(self.act(made).sum())
        assert self.act(self.kept).data_ptr() != self.address == self.kept.data_ptr()
        return made + 0


def test_memory_that_a_model_keeps_stays_where_it_is_and_may_grow() -> None:
    model = Grows()
    root = build_tree(Piece, model)
    sets = [torch.randn(n, 4) for n in (2, 3)]
    with recorded(root), torch.no_grad():
        outputs = [model(x) for x in sets]
    sets[0].resize_(5, 4).fill_(1)
    with torch.no_grad():
        assert model(sets[0]).shape == (5, 5)
    for call, expected in zip(root.calls, outputs, strict=True):
        assert torch.equal(call.outputs, expected)
    assert [tuple(call.args[0].shape) for call in root.calls] == [(2, 4), (3, 4)]


class Fills(torch.nn.Module):
    def forward(self, x: torch.Tensor, more: object, scale: float = 2.0) -> torch.Tensor:
        if isinstance(more, tuple):
            more[0].add_(1)
        elif isinstance(more, list):
            more.append(x)
        return x * scale


@pytest.mark.parametrize(
    ("more", "changed"),
    [
        ((torch.zeros(2), 3), True), ([torch.zeros(2)], True), (None, False), ({}, False),
        ({"a": (1, "b")}, False),
    ],
)  # fmt: skip
def test_what_a_call_changes_in_any_argument_is_seen(more: object, changed: bool) -> None:
    model = Fills()
    root = build_tree(Piece, model)
    with recorded(root):
        model(torch.ones(2), more)
    (call,) = root.calls
    assert (call.mutation is not None) == changed
    if isinstance(more, tuple):
        assert not call.args[1][0].any()
        assert call.mutation.leaves[1][1].tolist() == [1, 1]
