"""Complex tensors made, cast, chosen and tested, against eager."""

import pytest
import torch
from op_case import check

INF, NAN = float("inf"), float("nan")
G = torch.Generator().manual_seed(0)
X = [(torch.randn(n, 3, dtype=torch.complex64, generator=G),) for n in (2, 4, 1)]
ODD = [(torch.tensor([complex(NAN, 1), complex(1, INF), 2 + 0j, complex(0, NAN), 1j]),)]

CASES = [
    lambda x: x.real.to(torch.complex64), lambda x: x.to(torch.complex128),
    lambda x: (x.abs() > 1).to(torch.complex64), lambda x: x.real.long().to(torch.complex128),
    lambda x: x.real * 1j, lambda x: x.clone(), lambda x: x.detach() + 1,
    lambda x: torch.zeros(x.shape[0], 2, dtype=torch.complex64),
    lambda x: torch.ones(2, x.shape[0], dtype=torch.complex64),
    lambda x: torch.full((x.shape[0],), 1 + 2j), torch.zeros_like,
    torch.ones_like, lambda x: torch.ones_like(x.real, dtype=torch.complex64),
    lambda x: torch.ones_like(x, dtype=torch.float32),
    lambda x: x.new_zeros(2, x.shape[0]), lambda x: x.new_ones(x.shape[0], dtype=torch.int64),
    lambda x: x.new_full((2,), 1j), lambda x: x.real.new_zeros(2, dtype=torch.complex128),
    lambda x: torch.full_like(x, 2 - 1j), lambda x: torch.full_like(x, 2),
    lambda x: torch.zeros_like(x.real, dtype=torch.complex64),
    lambda x: torch.where(x.real > 0, x, 2j), lambda x: torch.where(x.real > 0, 1.5, x),
    lambda x: torch.where(x.real > 0, x, x.imag), lambda x: x.masked_fill(x.real > 0, 1j),
    lambda x: torch.nn.functional.pad(x, (1, 2)), lambda x: torch.nn.functional.pad(x, (0, -1)),
    lambda x: torch.nn.functional.pad(x, (1, 2, 3, 0)),
    lambda x: (torch.isnan(x), torch.isinf(x), torch.isfinite(x), torch.isreal(x)),
]  # fmt: skip


@pytest.mark.parametrize("function", CASES)
@pytest.mark.parametrize("inputs", [X, ODD])
def test_matches_eager(function, inputs):
    if inputs is ODD and function in CASES[-4:-1]:
        inputs = [(x.unsqueeze(0),) for (x,) in ODD]
    check(function, *inputs)


def filled(x):
    y = x.clone()
    y[:, 0] = 3.0
    y[:, 1] = 2 - 1j
    y[1:].mul_(2)
    y[x.real > 0] = 1j
    return y


def copied(x):
    y = x * 1
    y[1:].copy_(x[0])
    z = x * 2
    z.copy_(x.imag[:1])
    return y, z, z.zero_()


@pytest.mark.parametrize("function", [filled, copied])
def test_writes_in_place(function):
    check(function, *X)


@pytest.mark.filterwarnings("ignore:Casting complex values to real")
def test_real_numbers_written_over_with_complex_ones_take_their_real_parts():
    def function(x):
        y = x.real * 1
        y.copy_(x[:1])
        return y

    check(function, *X)


@pytest.mark.filterwarnings("ignore:Casting complex values to real")
def test_real_parts_are_what_a_cast_keeps():
    check(lambda x: x.to(torch.float32), *X)
