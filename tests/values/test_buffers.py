from __future__ import annotations

import contextlib

import torch
from torch import nn

from torchferry.diagnoser import trace_execution_piece_by_piece
from torchferry.values.buffers import buffers_kept


class _StopError(Exception):
    pass


def test_buffers_have_their_values_again_also_after_an_exception() -> None:
    norm = nn.BatchNorm1d(4)
    with contextlib.suppress(_StopError), buffers_kept(nn.Sequential(norm)):
        norm(torch.rand(3, 4) + 5)
        assert norm.running_mean is not None
        assert norm.running_mean.abs().sum() > 0
        raise _StopError
    assert norm.num_batches_tracked.item() == 0
    assert norm.running_mean.abs().sum() == 0


def test_a_buffer_that_was_put_in_the_place_of_another_is_taken_out_again() -> None:
    class Grows(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("seen", torch.zeros(2))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.seen = torch.cat([self.seen, x])
            return self.seen.sum()

    model = Grows()
    before = model.seen
    with buffers_kept(model):
        assert model(torch.ones(3)) == 3
    assert model.seen is before


def test_tracing_a_model_that_trains_leaves_its_statistics() -> None:
    model = nn.Sequential(
        nn.BatchNorm1d(4), nn.utils.parametrizations.spectral_norm(nn.Linear(4, 4))
    )
    before = {name: value.clone() for name, value in model.state_dict().items()}
    trace_execution_piece_by_piece(model.train(), [(torch.rand(n, 4) + 5,) for n in (3, 5)])
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


def test_what_a_module_notes_of_its_buffer_is_put_back_with_it() -> None:
    class Grows(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.size = 2
            self.register_buffer("table", torch.zeros(2))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            if len(x) > self.size:
                self.size = len(x)
                self.register_buffer("table", torch.zeros(self.size))
            return x + self.table[: len(x)]

    model = Grows()
    for _ in range(2):
        with buffers_kept(model):
            assert model(torch.ones(3)).tolist() == [1, 1, 1]
        assert (model.size, len(model.table)) == (2, 2)
