"""Axes and sizes that may be known only when the model runs."""

import onnx_ir as ir
import pytest

from torchferry.converter.block import Block
from torchferry.converter.ops.shape import axes


@pytest.fixture
def b():
    return Block(20)


def size(name):
    """A size that is known when the model runs."""
    return ir.Value(name=name, shape=ir.Shape([1]), type=ir.TensorType(ir.DataType.INT64))


def tensor(*sizes):
    return ir.Value(name="x", shape=ir.Shape(sizes), type=ir.TensorType(ir.DataType.FLOAT))


def test_constants_need_no_node(b):
    assert axes.times(b, 2, 3, 0) == 0
    assert axes.times(b) == 1
    assert axes.times(b, size("n"), 0) == 0
    assert axes.plus(b, 2, 3) == 5
    assert axes.minus(b, 2, 3) == -1
    assert axes.least(b, 2, 3) == 2
    n = size("n")
    assert axes.plus(b, 0, n) is axes.times(b, 1, n) is axes.least(b, n, n) is n
    assert b.nodes == []


def test_sizes_of_a_run_become_nodes(b):
    n = size("n")
    axes.times(b, n, 2, 3)
    axes.minus(b, 4, n)
    axes.least(b, n, 7)
    assert [node.op_type for node in b.nodes] == ["Mul", "Sub", "Min"]
    assert b.nodes[0].inputs[1].const_value.numpy().tolist() == [6]


def test_axes_count_from_the_front(b):
    x = tensor("n", 3, 4)
    assert axes.rank(x) == 3
    assert axes.axis_of(x, -1) == 2
    assert axes.axis_of(tensor(), -1) == 0
    with pytest.raises(IndexError):
        axes.axis_of(x, 3)
    with pytest.raises(ValueError, match="rank"):
        axes.rank(ir.Value(name="x"))


def test_the_pair_of_a_complex_number_is_no_axis():
    x = tensor(3, 2)
    x.meta["complex"] = True
    assert axes.rank(x) == 1
    assert axes.kept_complex(x, tensor()).meta["complex"]


def test_shapes_broadcast(b):
    x, y = tensor("n", 1, 4), tensor(3, 1)
    assert axes.common_sizes(b, y, tensor(1, 4)) == [3, 4]
    found = axes.common_sizes(b, x, y)
    assert found[1:] == [3, 4]
    assert isinstance(found[0], ir.Value)
    assert axes.expanded(b, y, [3, 1]) is y
    assert list(axes.expanded(b, y, [2, 3, 4]).shape) == [2, 3, 4]


def test_sizes_are_the_same_by_name():
    n, m = tensor("n").shape[0], tensor("m").shape[0]
    assert axes.same_size(n, tensor("n").shape[0])
    assert not axes.same_size(n, m)
    assert not axes.same_size(n, 3)
    assert not axes.same_size(ir.SymbolicDim(None), ir.SymbolicDim(None))
