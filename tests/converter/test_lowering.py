"""The registry: what may be registered, and what a user's operator becomes."""

import pytest
import torch
from op_case import check

import torchferry
from torchferry.converter.lowering import find_lowering, lowers, registered
from torchferry.errors import MissingLowering, UsageError

aten = torch.ops.aten
OPS = torch.library.Library("ferrylowering", "DEF")
for _name in ("twice", "scaled", "pair", "unknown"):
    returns = "(Tensor, Tensor)" if _name == "pair" else "Tensor"
    number = ", float by=2.0, *, int n=1" if _name == "scaled" else ""
    OPS.define(f"{_name}(Tensor x{number}) -> {returns}")
OPS.impl("twice", lambda x: x * 2, "CompositeExplicitAutograd")
OPS.impl("unknown", lambda x: x * 2, "CompositeExplicitAutograd")
OPS.impl("scaled", lambda x, by=2.0, *, n=1: x * by * n, "CompositeExplicitAutograd")
OPS.impl("pair", lambda x: (x + 1, x - 1), "CompositeExplicitAutograd")
ops = torch.ops.ferrylowering


@torchferry.lowers(ops.twice.default)
def twice(b, x):
    return b.Mul(x, 2)


@torchferry.lowers(ops.scaled.default)
def scaled(b, x, by=2.0, n=1):
    return b.Mul(b.Mul(x, by), n)


@torchferry.lowers(ops.pair.default)
def pair(b, x):
    return b.Add(x, 1), b.Sub(x, 1)


X = [(torch.randn(2, 3),), (torch.randn(1, 3),)]


@pytest.mark.parametrize(
    ("function", "target"),
    [
        (ops.twice, ops.twice.default),
        (lambda x: ops.scaled(x, 3.0, n=2), ops.scaled.default),
        (lambda x: ops.scaled(x, n=4), ops.scaled.default),
        (lambda x: ops.pair(x)[1], ops.pair.default),
        (ops.pair, ops.pair.default),
    ],
)
def test_an_operator_of_the_users(function, target):
    check(function, *X, target=target)


def test_one_without_a_lowering_is_named():
    with pytest.raises(MissingLowering, match=r"ferrylowering\.unknown\.default \(1x\)"):
        check(ops.unknown, *X)


def test_a_second_lowering_is_refused():
    with pytest.raises(UsageError, match=r"twice\.default is lowered by .*twice already"):
        lowers(ops.twice.default)(lambda b, x: x)


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda b, x, dimension=0: x, "has no argument dimension.*lacks dim, half_to_float"),
        (lambda b, x, dim: x, "lacks half_to_float"),
    ],
)
def test_parameters_that_are_not_the_schemas(function, message):
    with pytest.raises(UsageError, match=message):
        lowers(aten._sparse_softmax.default)(function)


def test_every_lowering_of_ours_is_found():
    assert find_lowering(aten.add.Tensor) is not None
    assert find_lowering(ops.unknown.default) is None
    assert len(registered()) > 20
