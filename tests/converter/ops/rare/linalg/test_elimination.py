"""The pieces of elimination, put into a graph by hand."""

import onnx_ir as ir
import pytest
import torch
from op_case import run

from torchferry.converter.block import Block
from torchferry.converter.ops.rare.linalg import elimination


def value(name, *shape):
    return ir.Value(name=name, type=ir.TensorType(ir.DataType.FLOAT), shape=ir.Shape(shape))


def model(b, inputs, outputs):
    for number, output in enumerate(outputs):
        output.name = f"out_{number}"
    graph = ir.Graph(inputs, outputs, nodes=b.nodes, opset_imports={"": b.opset}, name="g")
    made = ir.Model(graph, ir_version=10)
    for constant in b.constants.values.values():
        made.graph.register_initializer(constant)
    return made


@pytest.mark.parametrize(("n", "m"), [(3, 3), (4, 2), (2, 4), (1, 1)])
def test_factors_make_the_matrix(n, m):
    b, x = Block(20), value("x", "n", "m")
    factors = elimination.factorized(b, x)
    packed, order = run(
        model(b, [x], [factors.packed, factors.order]), (given := torch.randn(n, m),)
    )
    size = min(n, m)
    lower = packed[:, :size].tril(-1) + torch.eye(n, size)
    torch.testing.assert_close(lower @ packed[:size].triu(), given[order])
    assert lower.abs().max() <= 1


def test_elimination_tells_where_it_ends():
    b, x, y = Block(20), value("x", "n", "n"), value("y", "n", 1)
    solution, info = elimination.reduced(b, x, y)
    made = model(b, [x, y], [solution, info])
    good, singular = torch.tensor([[0.0, 2.0], [1.0, 1.0]]), torch.tensor([[1.0, 1.0], [1.0, 1.0]])
    side = torch.tensor([[2.0], [3.0]])
    result, at = run(made, (good, side))
    torch.testing.assert_close(good @ result, side)
    assert at == 0
    assert run(made, (singular, side))[1] == 2


@pytest.mark.parametrize("upper", [True, False])
def test_substitution_reads_one_triangle(upper):
    b, x, y = Block(20), value("x", "n", "n"), value("y", "n", 2)
    made = model(b, [x, y], [elimination.substituted(b, x, y, upper)])
    matrix, side = torch.randn(3, 3) + 3 * torch.eye(3), torch.randn(3, 2)
    triangle = matrix.triu() if upper else matrix.tril()
    (result,) = run(made, (matrix, side))
    torch.testing.assert_close(triangle @ result, side)


def test_a_matrix_that_is_not_positive_definite():
    b, x = Block(20), value("x", "n", "n")
    factor, info = elimination.cholesky_factor(b, x)
    made = model(b, [x], [factor, info])
    given = torch.tensor([[4.0, 2.0], [2.0, 5.0]])
    lower, at = run(made, (given,))
    torch.testing.assert_close(lower @ lower.T, given)
    assert at == 0
    assert run(made, (torch.tensor([[1.0, 2.0], [2.0, 1.0]]),))[1] == 2


def test_sizes_and_triangles():
    b, x = Block(20), value("x", 2, "n", "n")
    outputs = [
        elimination.identity(b, x),
        elimination.triangle(b, x, upper=True, diagonal=1),
        elimination.swapped(b, x),
        elimination.stack_sizes(b, x, [7]),
    ]
    given = torch.randn(2, 3, 3)
    eye, upper, turned, sizes = run(model(b, [x], outputs), (given,))
    torch.testing.assert_close(eye, torch.eye(3))
    torch.testing.assert_close(upper, given.triu(1))
    torch.testing.assert_close(turned, given.mT)
    assert sizes.tolist() == [2, 7]
    assert elimination.least(b, 3, 5) == 3
