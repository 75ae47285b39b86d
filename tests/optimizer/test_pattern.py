import pytest

from torchferry.optimizer.pattern import (
    AnyOf,
    Constant,
    Ops,
    Optional,
    Out,
    Var,
    depth_of,
    roots_of,
)


def test_operators_are_methods():
    p, x = Ops(), Var("x")
    root = p.Mul(x, p.Sigmoid(x, name="gate"), axis=1)
    assert isinstance(root, Out)
    assert root.node.op_types == ("Mul",)
    assert root.node.attributes == {"axis": 1}
    assert root.node.inputs[0] is x
    with pytest.raises(AttributeError, match="no operator is called so"):
        p.sigmoid(x)


def test_numbers_and_gaps_among_the_inputs():
    p = Ops()
    number, gap = p.Clip(1.5, None).node.inputs
    assert isinstance(number, Constant)
    assert number.accepts == 1.5
    assert isinstance(gap, Optional)


def test_several_outputs():
    p, x = Ops(), Var("x")
    parts = p.Split(x, outputs=2)
    assert [part.index for part in parts] == [0, 1]
    with pytest.raises(TypeError, match="one of the outputs"):
        p.Relu(parts)


def test_roots_and_depth():
    p, x = Ops(), Var("x")
    either = p.any_of(p.Relu(p.Neg(x)), p.Abs(x))
    assert isinstance(either, AnyOf)
    assert [root.node.op_types[0] for root in roots_of(either)] == ["Relu", "Abs"]
    assert depth_of(either) == 2
    assert depth_of(p.Add(x, p.optional(either))) == 3
    with pytest.raises(TypeError, match="ends in a node"):
        list(roots_of(x))
