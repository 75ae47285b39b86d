"""Window functions against eager."""

import pytest
import torch
from op_case import check

aten = torch.ops.aten

CASES = [
    (aten.hann_window.default, lambda: torch.hann_window(400)),
    (aten.hann_window.periodic, lambda: torch.hann_window(9, periodic=False)),
    (aten.hamming_window.default, lambda: torch.hamming_window(9)),
    (aten.hamming_window.periodic_alpha_beta,
     lambda: torch.hamming_window(9, True, 0.5, 0.4, dtype=torch.float64)),
    (aten.blackman_window.periodic, lambda: torch.blackman_window(8, periodic=False)),
    (aten.bartlett_window.default, lambda: torch.bartlett_window(6)),
    (aten.kaiser_window.default, lambda: torch.kaiser_window(7)),
    (aten.kaiser_window.beta, lambda: torch.kaiser_window(7, False, 5.0)),
    (aten.hann_window.default, lambda: torch.hann_window(1)),
    (None, lambda: torch.signal.windows.nuttall(9)),
]  # fmt: skip


@pytest.mark.parametrize(("target", "function"), CASES)
def test_matches_eager(target, function):
    check(
        lambda x: x * function().sum() + function()[0],
        (torch.ones(2),),
        (torch.ones(3),),
        target=target,
    )
