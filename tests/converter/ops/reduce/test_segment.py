"""Reductions of stretches against eager."""

import pytest
import torch
from op_case import check

TARGET = torch.ops.aten.segment_reduce.default
KINDS = ["sum", "mean", "prod", "max", "min"]
ROWS = [(torch.randn(n, 3), torch.tensor(lengths)) for n, lengths in (
    (6, [0, 1, 2, 3]), (9, [4, 0, 5, 0]), (2, [0, 0, 2, 0]))]  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("initial", [None, 2])
def test_lengths(kind, initial):
    def function(x, lengths):
        return torch.segment_reduce(x, kind, lengths=lengths, initial=initial, unsafe=True)

    check(function, *ROWS, target=TARGET)


@pytest.mark.parametrize("kind", KINDS)
def test_offsets(kind):
    def function(x, lengths):
        marks = torch.nn.functional.pad(lengths.cumsum(0), (1, 0))
        return torch.segment_reduce(x, kind, offsets=marks, unsafe=True)

    check(function, *ROWS, target=TARGET)


@pytest.mark.parametrize("kind", KINDS)
def test_another_axis(kind):
    sets = [
        (torch.randn(2, n, 3), torch.tensor(lengths))
        for n, lengths in ((5, [[2, 3, 0], [0, 1, 4]]), (4, [[4, 0, 0], [1, 1, 2]]))
    ]

    def function(x, lengths):
        return torch.segment_reduce(x, kind, lengths=lengths, axis=1, unsafe=True, initial=1)

    check(function, *sets, target=TARGET)


def test_what_lies_in_no_stretch_does_not_count():
    x, lengths = torch.arange(6.0), torch.tensor([1, 2])
    check(lambda x, n: torch.segment_reduce(x, "sum", lengths=n, unsafe=True), (x, lengths))


def test_nan_spreads():
    x = torch.tensor([1.0, float("nan"), 3, 4])
    for kind in KINDS:
        check(
            lambda x, n, kind=kind: torch.segment_reduce(x, kind, lengths=n, unsafe=True),
            (x, torch.tensor([2, 2])),
        )
