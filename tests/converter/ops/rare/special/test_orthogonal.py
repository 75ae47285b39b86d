"""Orthogonal polynomials against eager."""

import pytest
import torch
from op_case import check

aten = torch.ops.aten
NAMES = (
    "chebyshev_polynomial_t", "chebyshev_polynomial_u", "chebyshev_polynomial_v",
    "chebyshev_polynomial_w", "hermite_polynomial_h", "hermite_polynomial_he",
    "laguerre_polynomial_l", "legendre_polynomial_p",
    *(f"shifted_chebyshev_polynomial_{kind}" for kind in "tuvw"),
)  # fmt: skip
X = torch.tensor([-0.9, -0.3, 0.2, 0.5, 0.8])


@pytest.mark.parametrize("name", NAMES)
def test_matches_eager(name):
    """Degrees of a number, of a tensor, and none at all."""
    function, packet = getattr(torch.special, name), getattr(aten, f"special_{name}")
    check(lambda x: function(x, 4), (X,), target=packet.n_scalar, tolerance=1e-4)
    degrees = torch.tensor([[0, 1, 2, 3, 5], [-1, 2, 0, 4, 1]])
    sets = [(X.expand(n, 5).clone(), degrees[:1].expand(n, 5).clone()) for n in (2, 1, 0)]
    check(function, (X, degrees), target=packet.default, tolerance=1e-4)
    check(function, *sets, target=packet.default, tolerance=1e-4)
