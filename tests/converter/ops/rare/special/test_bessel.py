"""Bessel functions against eager."""

import pytest
import torch
from op_case import check

aten = torch.ops.aten
special = torch.special
INF, NAN = float("inf"), float("nan")
ABOVE = torch.cat([torch.linspace(0.01, 30, 60), torch.tensor([2.0, 8.0, 16.0, NAN])])
BOTH = torch.cat([ABOVE, -ABOVE, torch.tensor([0.0])])
ZERO = torch.tensor([0.0])

EVERYWHERE = ("i0e", "i1e", "bessel_j0", "bessel_j1", "spherical_bessel_j0")
GROWING = ("i0", "i1", "modified_bessel_i0", "modified_bessel_i1")
POSITIVE = ("bessel_y0", "bessel_y1", "modified_bessel_k0", "modified_bessel_k1",
            "scaled_modified_bessel_k0", "scaled_modified_bessel_k1")  # fmt: skip
CASES = [
    *((name, BOTH) for name in EVERYWHERE), *((name, BOTH / 2) for name in GROWING),
    *((name, torch.cat([ABOVE, ZERO])) for name in POSITIVE),
]  # fmt: skip


@pytest.mark.parametrize(("name", "x"), CASES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_matches_eager(name, x, dtype):
    overload = getattr(aten, f"special_{name}").default
    check(getattr(special, name), (x.to(dtype),), target=overload, tolerance=2e-5)


def test_other_sizes():
    check(special.i0e, *((torch.rand(n, 3),) for n in (2, 1, 0)), target=aten.special_i0e.default)
    check(torch.i0, (torch.tensor([1, 2]),), target=aten.i0.default)
