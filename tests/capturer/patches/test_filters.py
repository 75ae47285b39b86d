"""Recursive filters as a scan."""

import pytest
import torch

import torchferry as tf
from torchferry.capturer.patches.filters import PATCHES, filter_recursively


def filter_by_loop(x, a):
    y = torch.zeros_like(x)
    for t in range(x.shape[2]):
        y[:, :, t] = x[:, :, t]
        for k in range(1, min(a.shape[1], t + 1)):
            y[:, :, t] -= a[:, k] * y[:, :, t - k]
    return y


class Filters(torch.nn.Module):
    def __init__(self, weights):
        super().__init__()
        self.register_buffer("weights", weights)

    def forward(self, x):
        return filter_recursively(x, self.weights)


@pytest.mark.parametrize("order", [1, 3])
def test_a_filter_of_any_length(order):
    torch.manual_seed(0)
    weights = torch.cat([torch.ones(2, 1), torch.rand(2, order) - 0.5], 1)
    program = tf.export(Filters(weights), [(torch.rand(2, 2, 6),), (torch.rand(3, 2, 9),)])
    assert program.report.ok, program.report.problems
    for shape in ((5, 2, 40), (4, 2, 2)):
        x = torch.rand(shape)
        torch.testing.assert_close(program(x), filter_by_loop(x, weights))


def test_without_weights_nothing_is_filtered():
    x = torch.rand(2, 3, 4)
    assert filter_recursively(x, torch.ones(3, 1)) is x


def test_the_patch_is_of_torchaudio():
    (patch,) = PATCHES
    assert patch.library == "torchaudio"
