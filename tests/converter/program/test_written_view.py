"""Writes in place through what is a view at some sizes and a copy at others."""

import pytest
import torch
from torch import nn

import torchferry as tf
from torchferry.errors import ConversionError, UsageError


class Fill(nn.Module):
    """Write to what may be a view or a copy."""

    def __init__(self, part):
        super().__init__()
        self.part = part

    def forward(self, x):
        y = x + 0
        self.part(y).fill_(9)
        return y


@pytest.mark.sample(4)
@pytest.mark.parametrize("check", [True, False])
@pytest.mark.parametrize(
    ("part", "recorded", "good", "bad"),
    [
        # A view of every second column, where their number is even.
        (lambda y: y[:, ::2].reshape(-1), ((3, 5), (4, 7)), ((3, 9),), ((3, 4), (1, 6), (3, 2))),
        (lambda y: y[:, ::2].reshape(-1), ((3, 4), (4, 6)), ((2, 8),), ((3, 5), (1, 7))),
        (lambda y: y[:, ::7].flatten(), ((3, 20), (4, 22)), ((3, 17),), ((3, 21), (3, 14))),
        # Neither a batch of 1 nor one column makes it a view, both do.
        (lambda y: y[:, ::2].contiguous(), ((3, 4), (4, 6)), ((1, 4), (3, 2)), ((1, 2), (1, 1))),
        (lambda y: y[:, 0].contiguous(), ((3, 4), (4, 6)), ((2, 8),), ((3, 1), (1, 4))),
        (lambda y: y.view(len(y), -1, 2)[..., 0].reshape(-1), ((3, 4), (4, 6)), ((2, 8),), ()),
        (lambda y: y[:, :4].flatten(), ((3, 6), (4, 7)), ((2, 5),), ((3, 4), (1, 6), (3, 2))),
    ],
)
def test_a_write_through_what_may_be_a_view(part, recorded, good, bad, check):
    model = Fill(part).eval()
    made = tf.export(model, [(torch.rand(s),) for s in recorded], check=check, progress=False)
    for sizes in (*recorded, *good):
        x = torch.rand(sizes)
        torch.testing.assert_close(made(x), model(x))
    for sizes in bad:
        with pytest.raises(UsageError, match="was exported for sizes with"):
            made(torch.rand(sizes))


def test_a_copy_or_a_view_that_no_size_tells():
    model = Fill(lambda y: y[:, : y.shape[1] - y.shape[1] % 4].contiguous()).eval()
    with pytest.raises(ConversionError, match=r"a view or a copy.*clone\(\)"):
        tf.export(model, [(torch.rand(3, 7),), (torch.rand(4, 9),)], progress=False)
