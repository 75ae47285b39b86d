from __future__ import annotations

import contextlib

import torch
from torch import nn

from torchferry.diagnoser.buffers import buffers_kept


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
