"""Sums, means and products of complex tensors against eager."""

import pytest
import torch
from op_case import check, export

from torchferry.converter.translate import translate
from torchferry.errors import LoweringFailed

C64, C128 = torch.complex64, torch.complex128
aten = torch.ops.aten
r = torch.randn
SETS = [(r(2, 3, 4, dtype=C64),), (r(5, 3, 1, dtype=C64),), (r(1, 3, 7, dtype=C64),)]
CASES = [
    (aten.sum.default, lambda x: x.sum()),
    (aten.sum.default, lambda x: x.sum(dtype=C128)),
    (aten.sum.dim_IntList, lambda x: x.sum(-1)),
    (aten.sum.dim_IntList, lambda x: x.sum((0, 2), keepdim=True)),
    (aten.mean.default, lambda x: x.mean()),
    (aten.mean.dim, lambda x: x.mean(1)),
    (aten.mean.dim, lambda x: x.mean((0, -1), keepdim=True)),
    (aten.prod.default, lambda x: x.prod()),
    (aten.prod.dim_int, lambda x: x.prod(1)),
    (aten.prod.dim_int, lambda x: x.prod(-1, keepdim=True, dtype=C128)),
    (aten.cumsum.default, lambda x: x.cumsum(-1)),
    (aten.cumsum.default, lambda x: x.cumsum(0, dtype=C128)),
]


@pytest.mark.parametrize(("target", "function"), CASES)
def test_matches_eager(target, function):
    check(function, *SETS, target=target)


@pytest.mark.parametrize("function", [torch.sum, torch.mean, torch.prod, lambda x: x.cumsum(0)])
def test_one_number(function):
    check(function, (r((), dtype=C64),))


def test_nothing():
    check(lambda x: (x.sum(1), x.mean(1), x.prod(1)), (r(2, 0, dtype=C64),))


def test_real_numbers_are_added_as_complex_ones():
    check(lambda x: (x.sum(dtype=C64), x.sum(0, dtype=C128)), (r(3, 2),), (r(1, 2),))


@pytest.mark.filterwarnings("ignore:Casting complex values to real")
def test_a_real_sum_of_complex_numbers_is_refused():
    with pytest.raises(LoweringFailed, match=r"take \.real before it"):
        translate(export(lambda x: x.sum(dtype=torch.float32), (r(3, dtype=C64),)), 20)


def test_products_of_units_are_exact():
    check(lambda x: x.prod(), (torch.tensor([-1 + 0j, 1j, -1j, 2]),), tolerance=1e-7)
