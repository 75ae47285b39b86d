"""Integers as bits and as products of primes, against eager."""

import operator

import pytest
import torch
from op_case import check

aten = torch.ops.aten
G = torch.Generator().manual_seed(0)
INTS = [
    (torch.randint(-99, 99, (n, 4), generator=G), torch.tensor([6, -4, 0, 9]))
    for n in (2, 5, 1, 0)
]
NARROW = [(x.int(), y.int()) for x, y in INTS]
BYTES = [(x.byte(), y.byte()) for x, y in INTS]
BOOLS = [(x > 0, y > 0) for x, y in INTS]
SHIFTS = [(x, torch.tensor([0, 1, 7, 63])) for x, _ in INTS]
ODD = [(torch.tensor([-1, 1, -(2**63), 2**62]), torch.tensor([64, 70, 63, 1]))]
NARROW_SHIFTS = [(x.int(), torch.tensor([0, 1, 7, 31]).int()) for x, _ in INTS]
BYTE_SHIFTS = [(x.byte(), torch.tensor([0, 1, 7, 3]).byte()) for x, _ in INTS]

BITWISE = [
    (aten.bitwise_and, operator.and_, torch.bitwise_and),
    (aten.bitwise_or, operator.or_, torch.bitwise_or),
    (aten.bitwise_xor, operator.xor, torch.bitwise_xor),
]
CASES = [
    *((packet.Tensor, function, s) for packet, _, function in BITWISE
      for s in (INTS, NARROW, BYTES, BOOLS)),
    *((packet.Scalar, lambda x, y, f=function: f(x, 12), s) for packet, _, function in BITWISE
      for s in (INTS, NARROW)),
    (aten.bitwise_and.Scalar_Tensor, lambda x, y: torch.bitwise_and(12, y), INTS),
    *((None, function, s) for _, function, _ in BITWISE for s in (INTS, BOOLS)),
    *((aten.bitwise_not.default, lambda x, y: ~x, s) for s in (INTS, BYTES, BOOLS)),
    *((None, operator.lshift, s) for s in (SHIFTS, NARROW_SHIFTS, BYTE_SHIFTS)),
    *((aten.bitwise_left_shift.Tensor, torch.bitwise_left_shift, s)
      for s in (SHIFTS, NARROW_SHIFTS, BYTE_SHIFTS, ODD)),
    *((None, operator.rshift, s) for s in (SHIFTS, NARROW_SHIFTS, BYTE_SHIFTS)),
    *((aten.bitwise_right_shift.Tensor, torch.bitwise_right_shift, s)
      for s in (SHIFTS, NARROW_SHIFTS, BYTE_SHIFTS, ODD)),
    (aten.bitwise_left_shift.Tensor_Scalar, lambda x, y: torch.bitwise_left_shift(x, 3), INTS),
    (aten.bitwise_right_shift.Tensor_Scalar, lambda x, y: torch.bitwise_right_shift(x, 3), INTS),
    *((aten.gcd.default, torch.gcd, s) for s in (INTS, NARROW, BYTES)),
    *((aten.lcm.default, torch.lcm, s) for s in (INTS, NARROW)),
    (None, lambda x, y: torch.gcd(torch.gcd(x, y), y + 3), INTS),
]  # fmt: skip


@pytest.mark.parametrize(("target", "function", "inputs"), CASES)
def test_matches_eager(target, function, inputs):
    check(function, *inputs, target=target, exact=True)
