"""Arithmetic of two and three operands against eager, at sizes other than those exported."""

import pytest
import torch
from op_case import check, export, run

from torchferry.converter.translate import translate
from torchferry.errors import LoweringFailed

aten = torch.ops.aten
NAN, INF = float("nan"), float("inf")
G = torch.Generator().manual_seed(0)


def randn(*shape):
    return torch.randn(*shape, generator=G)


def sets(dtype=torch.float32):
    """Two operands, at the exported batch size, at others, at 1, and at none."""

    def made(n):
        if dtype.is_floating_point:
            return randn(n, 3).to(dtype), randn(3).to(dtype)
        numbers = torch.randint(-20, 20, (n, 3), generator=G).to(dtype)
        return numbers, torch.tensor([1, -3, 7]).to(dtype)

    return [made(n) for n in (2, 4, 1, 0)]


FLOATS, HALVES, DOUBLES = sets(), sets(torch.float16), sets(torch.float64)
INTS, SHORTS, NARROW = sets(torch.int64), sets(torch.int16), sets(torch.int32)
BOOLS = [(torch.tensor([True, False, True, False]), torch.tensor([True, True, False, False]))]
SPECIAL = [
    (torch.tensor([NAN, 1.0, -1.0, 0.0, -0.0, INF]), torch.tensor([2.0, INF, 0.0, 1, 1, 2]))
]
ENDLESS = torch.tensor([NAN, INF, -0.0])
THREE = [(randn(n, 3), randn(3), randn(n, 1).abs() + 1) for n in (2, 4, 1, 0)]

CASES = [
    *((aten.add.Tensor, lambda x, y: x + y, s) for s in (FLOATS, HALVES, INTS, SHORTS, BOOLS)),
    (aten.add.Tensor, lambda x, y: torch.add(x, y, alpha=2.5), FLOATS),
    (aten.add.Tensor, lambda x, y: torch.add(x, y, alpha=3), INTS),
    (aten.add.Tensor, lambda x: x + 1.5, [(torch.arange(6),), (torch.arange(1),)]),
    (aten.add.Tensor, lambda x: torch.add(x, x, alpha=x.shape[0]), [(randn(3),), (randn(1),)]),
    *((aten.sub.Tensor, lambda x, y: x - y, s) for s in (FLOATS, INTS, DOUBLES)),
    (aten.rsub.Scalar, lambda x, y: 1.0 - x, INTS),
    (aten.rsub.Scalar, lambda x: torch.rsub(x, 3, alpha=2), [(randn(3),)]),
    *((aten.mul.Tensor, lambda x, y: x * y, s) for s in (FLOATS, INTS, BOOLS)),
    (aten.mul.Tensor, lambda x: x * x.shape[0], [(randn(3),), (randn(1),)]),
    (aten.mul.Tensor, lambda x: x * (x > 0), [(torch.tensor([1, -1]),)]),
    *((aten.div.Tensor, lambda x, y: x / y, s) for s in (FLOATS, INTS, SHORTS)),
    *(
        (aten.div.Tensor_mode, lambda x, y, m=mode: torch.div(x, y, rounding_mode=m), s)
        for mode in (None, "floor", "trunc")
        for s in (FLOATS, INTS, NARROW, SPECIAL)
    ),
    *((aten.floor_divide.default, lambda x, y: x // y, s) for s in (FLOATS, INTS, SPECIAL)),
    (aten.floor_divide.default, lambda x: x // 0.1, [(torch.tensor([1.0, 0.3, -0.7, 2.0]),)]),
    *((aten.remainder.Tensor, torch.remainder, s) for s in (FLOATS, INTS, NARROW, HALVES)),
    *(
        (aten.remainder.Scalar, lambda x, y, d=d: x % d, s)
        for d in (3, -3)
        for s in (FLOATS, INTS)
    ),
    (aten.remainder.Scalar_Tensor, lambda x, y: torch.remainder(7, y), INTS),
    *((aten.fmod.Tensor, torch.fmod, s) for s in (FLOATS, INTS, NARROW)),
    (aten.fmod.Scalar, lambda x: torch.fmod(x, 10), [(torch.tensor([2**62 + 1, -(2**60) - 7]),)]),
    *((aten.trunc.default, lambda x, y: torch.trunc(x), s) for s in (SPECIAL, FLOATS, INTS)),
    (aten.addcmul.default, lambda x, y, z: torch.addcmul(x, y, z, value=0.5), THREE),
    (aten.addcmul.default, torch.addcmul, THREE),
    (aten.addcdiv.default, lambda x, y, z: torch.addcdiv(x, y, z, value=-2), THREE),
    (aten.lerp.Scalar, lambda x, y: torch.lerp(x, y, 0.3), FLOATS),
    (aten.lerp.Scalar, lambda x, y: torch.lerp(x, y, 0.9), HALVES),
    (aten.lerp.Tensor, torch.lerp, THREE),
    *((aten.logaddexp.default, torch.logaddexp, s) for s in (FLOATS, HALVES, SPECIAL)),
    (aten.logaddexp.default, torch.logaddexp, [(torch.tensor([INF, -INF]),) * 2]),
    (aten.logaddexp2.default, torch.logaddexp2, FLOATS),
    (
        aten.xlogy.Tensor,
        torch.xlogy,
        [(torch.tensor([0.0, 0, 2, NAN]), torch.tensor([0, NAN, 3, 1]))],
    ),
    (aten.xlogy.Scalar_Self, lambda x: torch.xlogy(2, x), [(torch.tensor([1, 2, 3]),)]),
    (aten.hypot.default, torch.hypot, [*FLOATS, (torch.tensor([[1e30, 3, 0]]), torch.ones(3))]),
    (aten.hypot.default, torch.hypot, [(torch.tensor([[INF, NAN, 0], [-INF, 3, NAN]]), ENDLESS)]),
    (aten.hypot.default, torch.hypot, [(torch.tensor([3e200, 3e-200, 0.0]).double(),) * 2]),
    (aten.heaviside.default, torch.heaviside, SPECIAL),
    (aten.heaviside.default, torch.heaviside, INTS),
]


@pytest.mark.parametrize(("target", "function", "inputs"), CASES)
def test_matches_eager(target, function, inputs):
    check(function, *inputs, target=target)


@pytest.mark.sample(5)
@pytest.mark.parametrize("divisor", [3, -2, 1, -1, 7])
@pytest.mark.parametrize("dtype", [torch.int8, torch.int16, torch.int32, torch.int64])
def test_integers_at_the_ends_of_their_range(dtype, divisor):
    ends = torch.iinfo(dtype)
    x = torch.tensor([ends.min, ends.min + 1, ends.max, ends.max - 1, 7, 0, -7]).to(dtype)
    others = torch.tensor([divisor, ends.max, ends.min]).to(dtype).unsqueeze(1)

    def function(x, y):
        floors = x // divisor, x // y, torch.div(x, divisor, rounding_mode="floor")
        floors += x % divisor, x % y
        if divisor == -1:  # PyTorch ends the process where it rounds towards zero
            return floors
        return *floors, torch.div(x, y, rounding_mode="trunc")

    check(function, (x, others), (x[:1], others[:1]), (x[:0], others))


def test_the_least_integer_over_minus_one_does_not_end_the_process():
    program = export(lambda x, y: torch.div(x, y, rounding_mode="trunc"), INTS[0])
    least = torch.full((2, 3), -(2**63))
    (got,) = run(translate(program, 20), (least, torch.tensor([-1, -1, -1])))
    assert torch.equal(got, least)


def test_uneven_lerp_ends_exactly():
    """At a weight of 1 the end is reached, however far the start was."""
    far = (torch.tensor([1e8, -1e8]), torch.tensor([1.0, 3.0]), torch.tensor([1.0, 1.0]))
    check(torch.lerp, far, exact=True)


def test_one_node_for_a_sum():
    model = check(lambda x, y: x + y, *FLOATS)
    assert [node.op_type for node in model.graph] == ["Add"]


def test_an_error_names_the_place():
    """An unsupported power is told with its reason and what to do."""
    program = export(lambda x: torch.bitwise_left_shift(x, 1), (torch.arange(3),))
    next(n for n in program.graph.nodes if n.op == "placeholder").meta["val"] = torch.ones(3)
    with pytest.raises(LoweringFailed, match="only integers are shifted"):
        translate(program, 20)
