"""Complex numbers against eager."""

import operator

import pytest
import torch
from op_case import check, export

from torchferry.converter.translate import translate
from torchferry.errors import LoweringFailed

aten = torch.ops.aten
G = torch.Generator().manual_seed(0)


def made(n, dtype=torch.complex64):
    return torch.randn(n, 3, dtype=dtype, generator=G)


PAIRS = [(made(n), made(n)) for n in (2, 4, 1)]
BROADCAST = [(made(n), made(1)[0]) for n in (2, 1)]
REAL = [(x, y.real.clone()) for x, y in PAIRS]
DOUBLES = [(made(n, torch.complex128), made(n, torch.complex128)) for n in (2, 1)]
MIXED = [(x, made(len(x), torch.complex128)) for x, _ in PAIRS]
ODD = [
    (torch.complex(*torch.meshgrid(*[torch.tensor([0.0, -0.0, 2, -2])] * 2, indexing="ij")),) * 2
]
BINARY = (operator.add, operator.sub, operator.mul, operator.truediv)
UNARY = (torch.abs, torch.angle, torch.conj, torch.reciprocal, torch.neg, torch.square, torch.sgn,
         torch.exp, torch.log, torch.sqrt, torch.sin, torch.cos, torch.sinh, torch.cosh,
         torch.tanh,
         torch.sigmoid, torch.nn.functional.silu, torch.real, torch.imag, torch.view_as_real,
         torch.conj_physical, torch.positive)  # fmt: skip

CASES = [
    *((f, s) for f in BINARY for s in (PAIRS, BROADCAST, REAL, DOUBLES)),
    *((lambda x, y, f=f: f(y, x), REAL) for f in BINARY),
    *((lambda x, y, f=f, n=n: f(x, n), PAIRS) for f in BINARY for n in (2.5, 1 + 2j)),
    *((lambda x, y, f=f, n=n: f(n, x), PAIRS) for f in BINARY for n in (2.5, 1 + 2j)),
    (lambda x, y: torch.add(x, y, alpha=2), PAIRS),
    (lambda x, y: torch.sub(x, y, alpha=2), REAL),
    (lambda x, y: x * x.shape[0], PAIRS),
    *((lambda x, y, f=f: f(x), s) for f in UNARY for s in (PAIRS, DOUBLES)),
    *((lambda x, y, f=f: f(x), ODD) for f in (torch.abs, torch.angle, torch.sgn, torch.square)),
    *((lambda x, y, e=e: x**e, PAIRS) for e in (2, 0.5, -1, 3 + 1j)),
    (lambda x, y: x**y, PAIRS),
    (lambda x, y: 2**x, PAIRS),
    *((lambda x, y, f=f: (f(x, y), f(y, x)), MIXED) for f in BINARY),
    *((lambda x, y, f=f: (f(x, y.real), f(y.real[0], x)), MIXED) for f in BINARY),
    (lambda x, y: (x == y, torch.where(y.real > 0, x, y), x**y), MIXED),
    (lambda x, y: (torch.log1p(x), torch.log1p(y * 1e-6)), PAIRS),
    (lambda x, y: (x == y, x != x, x == 0, y != 1j), PAIRS),
    (lambda x, y: (torch.complex(y, y), torch.polar(y, y), torch.angle(y)), REAL),
    (lambda x, y: torch.view_as_complex(torch.view_as_real(x) * 2) * y, PAIRS),
    (lambda x, y: torch.view_as_real(x) * y.unsqueeze(-1), REAL),
    (lambda x, y: (x.real * 2, x.imag + x.real, (x * y).conj().imag), PAIRS),
    (
        lambda x, y: torch.stft(
            y.real.reshape(-1), 4, 2, window=torch.ones(4), center=False, return_complex=True
        ).abs(),
        [(made(5), made(5))],
    ),
]


@pytest.mark.parametrize(("function", "inputs"), CASES)
def test_matches_eager(function, inputs):
    check(function, *inputs, tolerance=2e-5)


@pytest.mark.parametrize("packet", ["mul", "add", "div", "sub"])
def test_the_overload_is_the_one_written(packet):
    overload = getattr(aten, packet).Tensor
    check(getattr(torch, packet), *PAIRS, target=overload, tolerance=2e-5)


def test_rotary_embedding_of_llama():
    """The form in which the first Llama turns its queries."""

    def function(x, angles):
        turned = torch.view_as_complex(x.reshape(*x.shape[:-1], -1, 2))
        return torch.view_as_real(turned * torch.polar(torch.ones_like(angles), angles)).flatten(2)

    sets = [(torch.randn(b, s, 8), torch.randn(s, 4)) for b, s in ((2, 3), (1, 5), (3, 1))]
    check(function, *sets)


def test_great_numbers_have_a_size():
    check(torch.abs, (torch.tensor([3e30 + 4e30j, 3e-30 + 4e-30j]),))
    check(torch.abs, (torch.tensor([3e200 + 4e200j, 3e-200j], dtype=torch.complex128),))


def test_what_is_not_converted_is_named():
    program = export(torch.asin, (made(2),))
    with pytest.raises(LoweringFailed, match=r"aten\.asin\.default"):
        translate(program, 20)
