"""Products of complex tensors against eager."""

import pytest
import torch
from op_case import check

aten = torch.ops.aten
G = torch.Generator().manual_seed(0)


def made(*shape, dtype=torch.complex64):
    return torch.randn(shape, dtype=dtype, generator=G)


LINES = [(made(n), made(n)) for n in (3, 5, 1, 0)]
SETS = [(made(n, 3), made(n, 3), made(1, 3) + 3) for n in (2, 4, 1, 0)]

CASES = [
    (aten.outer.default, torch.outer, LINES),
    (aten.outer.default, lambda x, y: torch.outer(x.real, y), LINES),
    (aten.outer.default, lambda x, y: torch.outer(x.to(torch.complex128), y.imag), LINES),
    (aten.vdot.default, torch.vdot, LINES),
    (aten.addcmul.default, torch.addcmul, SETS),
    (aten.addcmul.default, lambda x, y, z: torch.addcmul(x, y, z, value=0.5 + 1j), SETS),
    (aten.addcmul.default, lambda x, y, z: torch.addcmul(x.real, y.real, z), SETS),
    (aten.addcdiv.default, lambda x, y, z: torch.addcdiv(x, y, z, value=-2), SETS),
    (aten.lerp.Scalar, lambda x, y, z: torch.lerp(x, y, 0.3), SETS),
    (aten.lerp.Scalar, lambda x, y, z: torch.lerp(x, y, 0.5 - 1j), SETS),
    (aten.lerp.Tensor, torch.lerp, SETS),
]


@pytest.mark.parametrize(("target", "function", "sets"), CASES)
def test_matches_eager(target, function, sets):
    check(function, *sets, target=target, tolerance=2e-5)


def test_a_whole_way_ends_exactly():
    far = torch.tensor([1e8 + 1j, -1e8j]), torch.tensor([1.0 + 0j, 3j])
    check(lambda x, y: torch.lerp(x, y, 1.0), far, exact=True)
