"""Nodes that are not written, and look-alikes that are."""

import pytest
import torch
from op_case import check

X = [(torch.randn(2, 3),), (torch.randn(5, 3),)]


@pytest.mark.parametrize(
    ("function", "nodes"),
    [
        (lambda x: x[None, :, None, :, None], ["Unsqueeze"]),
        (lambda x: x.unsqueeze(-1).unsqueeze(0).unsqueeze(2), ["Unsqueeze"]),
        (lambda x: x * 1, []),
        (lambda x: 1.0 * (x + 1), ["Add"]),
        (lambda x: x / 1.0 + x, ["Add"]),
        (lambda x: x.view(x.shape[0], 3) + 1, ["Add"]),
        (lambda x: (x > 0) & True, ["Greater"]),
    ],
)
def test_one_node_does(function, nodes):
    model = check(function, *X)
    assert [node.op_type for node in model.graph if node.op_type != "Identity"] == nodes


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x * torch.ones(1, 1, 1),
        lambda x: x * 2,
        lambda x: x.to(torch.int64) * 1.0,
        lambda x: x.view(3, x.shape[0]) * 1,
        lambda x: (x > 0) & torch.zeros((), dtype=torch.bool),
        lambda x: x.sum() * torch.ones(4),
    ],
)
def test_what_only_looks_alike(function):
    check(function, *X)


def test_a_value_that_is_used_elsewhere_stays():
    def function(x):
        y = x.unsqueeze(0)
        return y + 1, y.unsqueeze(-1)

    model = check(function, *X)
    assert [node.op_type for node in model.graph].count("Unsqueeze") == 2


@pytest.mark.parametrize(
    "dtype",
    [torch.float32, torch.bool, torch.int64, torch.float16, torch.bfloat16, torch.complex64],
)
def test_what_is_expanded_to_nothing(dtype):
    """onnxruntime takes (1, 3) for (0, 3) where both are known."""

    def function(x):
        y = x.to(dtype)
        return y.expand(0, -1), y[:, None].expand(-1, 0, 3), y.expand(2, 0, 3), y[:0].expand(0, 3)

    check(function, (torch.ones(1, 3),))
