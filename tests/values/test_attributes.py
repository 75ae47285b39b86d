from __future__ import annotations

from collections import deque

import pytest
import torch
from torch import nn

from torchferry.diagnoser.output import trace_execution_piece_by_piece
from torchferry.values.attributes import attributes_kept


class Counts(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.calls = 0
        self.register_buffer("total", torch.zeros(2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        self.last = x
        self.total += x
        return x


def test_buffers_and_attributes_are_as_before_also_after_an_exception() -> None:
    model = nn.Sequential(Counts())
    total = model[0].total

    def run() -> None:
        with attributes_kept(model):
            model(torch.ones(2))
            assert model[0].calls == 1
            model(torch.ones(3))

    with pytest.raises(RuntimeError):
        run()
    assert model[0].calls == 0
    assert not hasattr(model[0], "last")
    assert model[0].total is total
    assert total.tolist() == [0, 0]


def test_a_lazy_module_is_what_its_first_call_made_it() -> None:
    model = nn.Sequential(nn.LazyLinear(3))
    with attributes_kept(model), torch.no_grad():
        expected = model(torch.ones(2, 5))
    assert type(model[0]) is nn.Linear
    assert model[0].in_features == 5
    assert torch.equal(model(torch.ones(2, 5)), expected)


class Remembers(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.seen: list[torch.Tensor] = []
        self.by_name = {"a": [1, 2]}
        self.recent = deque([1, 2], maxlen=2)
        self.sizes = {3}

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.seen.append(x)
        self.by_name["a"].pop()
        self.by_name["b"] = []
        self.recent.append(len(x))
        self.sizes.add(len(x))
        return x * len(self.seen)


def test_containers_hold_what_they_did_and_are_the_same_objects() -> None:
    model = Remembers()
    held = dict(vars(model))
    with attributes_kept(model):
        model(torch.ones(5))
        assert len(model.seen) == 1
        assert model.by_name == {"a": [1], "b": []}
    assert model.seen == []
    assert model.by_name == {"a": [1, 2]}
    assert [*model.recent] == [1, 2]
    assert model.sizes == {3}
    assert all(vars(model)[name] is value for name, value in held.items())


class Remembering(nn.Module):
    """Keeps what it was called with."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[torch.Tensor] = []
        self.last: torch.Tensor | None = None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.seen.append(x)
        self.last = x
        return x + len(self.seen)


def test_tracing_leaves_lists_and_attributes_as_they_were() -> None:
    model = torch.nn.Sequential(Remembering())
    trace_execution_piece_by_piece(model, [(torch.ones(n),) for n in (2, 3)])
    assert (model[0].seen, model[0].last) == ([], None)
