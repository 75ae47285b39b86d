"""Nodes that are not written, and look-alikes that are."""

import pytest
import torch
from op_case import check

from torchferry.seams.pytorch import quantized_operators

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


quantized_operators()
Q = torch.ops.quantized_decomposed


class Dequantized(torch.nn.Module):
    """A weight of bytes that is dequantized, and what is done with it."""

    def __init__(self, use, rows=False):
        super().__init__()
        torch.manual_seed(0)
        self.register_buffer("codes", torch.randint(-127, 127, (64, 64), dtype=torch.int8))
        self.register_buffer("scales", torch.rand(64) * 0.01)
        self.register_buffer("zeros", torch.randint(-9, 9, (64,)))
        self.use, self.rows = use, rows

    def forward(self, x):
        if self.rows:
            weight = Q.dequantize_per_channel(
                self.codes, self.scales, self.zeros, 0, -128, 127, torch.int8
            )
        else:
            weight = Q.dequantize_per_tensor(self.codes, 0.01, 3, -128, 127, torch.int8)
        return self.use(x, weight)


def places(x):
    return (x.abs() * 9).to(torch.int64)


PRODUCTS = {
    "matmul": lambda x, w: x @ w,
    "matmul of three axes": lambda x, w: x[None] @ w,
    "linear": torch.nn.functional.linear,
    "linear of three axes": lambda x, w: torch.nn.functional.linear(x[None], w),
    "linear with a bias": lambda x, w: torch.nn.functional.linear(x, w, torch.ones(64)),
    "addmm": lambda x, w: torch.addmm(torch.ones(64), x, w),
    "the other operand": lambda x, w: w @ x.t(),
    "not at once": lambda x, w: x @ w.relu(),
    "rows": lambda x, w: torch.nn.functional.embedding(places(x), w),
    "rows of another layout": lambda x, w: torch.nn.functional.embedding(
        places(x), w.reshape(128, 32)
    ),
    "columns": lambda x, w: w[:, places(x[:, 0])],
}


@pytest.mark.parametrize("opset", [20, 23])
@pytest.mark.parametrize("rows", [False, True])
@pytest.mark.parametrize("name", PRODUCTS)
def test_dequantized_weights(name, rows, opset):
    """Products with inputs that onnxruntime would round to eight bits."""
    feeds = [(torch.randn(size, 64),) for size in (2, 1, 5)]
    model = check(Dequantized(PRODUCTS[name], rows), *feeds, opset=opset, tolerance=1e-5)
    weight = model.graph.initializers["codes"]
    assert weight.dtype.name == "INT8"


def test_a_whole_table_is_not_dequantized():
    feeds = [(torch.randn(size, 64),) for size in (2, 5)]
    nodes = [n.op_type for n in check(Dequantized(PRODUCTS["rows"]), *feeds).graph]
    assert nodes[-2:] == ["Gather", "DequantizeLinear"]
    nodes = [n.op_type for n in check(Dequantized(PRODUCTS["rows"], rows=True), *feeds).graph]
    assert "DequantizeLinear" not in nodes


def test_the_product_of_two_dequantized_operands_stays():
    """onnxruntime multiplies the integers."""

    def use(x, weight):
        args = 0.02, 3, -128, 127, torch.int8
        return Q.dequantize_per_tensor(Q.quantize_per_tensor(x, *args), *args) @ weight

    feeds = [(torch.randn(size, 64),) for size in (2, 5)]
    nodes = [n.op_type for n in check(Dequantized(use), *feeds, tolerance=1e-5).graph]
    assert nodes.count("DequantizeLinear") == 2
