"""Sizes computed in the graph, against Python's own arithmetic."""

import pytest
import torch
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st
from op_case import export, run

from torchferry.converter.translate import translate

SIZES = [
    lambda a, b: a + b,
    lambda a, b: 2 * a - 1,
    lambda a, b: a * b + a,
    lambda a, b: (a + b) // 3,
    lambda a, b: -(-a // 2),
    lambda a, b: (a - b) // 2,
    lambda a, b: (a - 7) % 4,
    lambda a, b: a % 3,
    torch.sym_max,
    lambda a, b: torch.sym_min(a, 4),
    lambda a, b: a**2,
    lambda a, b: torch.sym_int(a / 2),
    lambda a, b: round(a * 0.3) + round(b / 2),
    lambda a, b: (a // 2) * (b % 3) + 5,
]


@pytest.mark.parametrize("size", SIZES)
def test_a_size_is_what_python_says(size):
    def function(x, y):
        return x.sum() * 0 + size(x.shape[0], y.shape[0])

    sets = [(torch.ones(n), torch.ones(m)) for n, m in ((5, 3), (1, 8), (8, 1), (13, 2))]
    model = translate(export(function, *sets), 20)
    for x, y in sets:
        (got,) = run(model, (x, y))
        assert got.item() == size(x.shape[0], y.shape[0])


def test_a_size_that_data_decides():
    def function(x):
        chosen = x[x > 0]
        return chosen * chosen.shape[0]

    model = translate(export(function, (torch.tensor([1.0, -1.0, 2.0]),), (torch.ones(5),)), 20)
    for x in (torch.tensor([3.0, -1.0]), -torch.ones(4), torch.ones(6)):
        (got,) = run(model, (x,))
        assert torch.equal(got, function(x))


def test_a_symbol_that_only_stands_in_an_expression():
    n = torch.export.Dim("n", min=1, max=50)

    class Model(torch.nn.Module):
        def forward(self, x):
            return x.reshape(-1, 2) * (x.shape[0] // 2)

    program = torch.export.export(Model(), (torch.ones(6),), dynamic_shapes=({0: 2 * n},))
    model = translate(program, 20)
    for size in (2, 10):
        x = torch.randn(size)
        (got,) = run(model, (x,))
        assert torch.allclose(got, x.reshape(-1, 2) * (size // 2))


def sizes_at_work(x, y):
    """Shapes as models compute them: sums, products, quotients, remainders, the larger of two."""
    rows, columns, width = x.shape[0], x.shape[1], y.shape[1]
    return (
        x.reshape(-1),
        x.new_zeros(rows + 2 * columns, width % 3 + 1),
        torch.arange(rows * columns - columns),
        torch.full((rows // 2, torch.sym_max(columns, width)), 7.0),
        torch.cat([x, y], dim=1)[:, columns // 2 : columns + width - width // 2],
        x.unsqueeze(2).expand(rows, columns, width + 1).transpose(0, 1).flatten(1),
        (x.sum() * (rows - 3) / (columns + 1)).reshape(1),
    )


@pytest.fixture(scope="module")
def sized():
    inputs = torch.randn(4, 6), torch.randn(4, 5)
    return translate(export(sizes_at_work, inputs, (torch.randn(7, 8), torch.randn(7, 9))), 20)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 9), st.integers(0, 9), st.integers(0, 9))
@example(0, 0, 0)
@example(1, 1, 1)
@example(1, 0, 1)
def test_shape_arithmetic_at_any_size(sized, rows, columns, width):
    inputs = torch.randn(rows, columns), torch.randn(rows, width)
    try:
        expected = sizes_at_work(*inputs)
    except RuntimeError:  # arange to a negative size
        assume(False)
    for value, other in zip(run(sized, inputs), expected, strict=True):
        assert value.shape == other.shape
        torch.testing.assert_close(value, other, rtol=1e-5, atol=1e-5)
