"""Casts and aliases against eager."""

import pytest
import torch
from op_case import check, export

from torchferry.converter.translate import translate
from torchferry.errors import LoweringFailed

aten = torch.ops.aten
DTYPES = (torch.float32, torch.float16, torch.float64, torch.int64, torch.int32, torch.int16,
          torch.int8, torch.uint8, torch.bool)  # fmt: skip
VALUES = torch.tensor([0.0, 0.4, -0.6, 1.0, -1.5, 100.7, 127.0])


@pytest.mark.parametrize("wanted", DTYPES)
@pytest.mark.parametrize("given", DTYPES)
def test_each_dtype_to_each(given, wanted):
    x = VALUES.to(given)
    check(lambda x: x.to(wanted), (x.expand(2, 7),), (x[:1].expand(3, 7),), exact=True)


# Beside whole numbers: what a half rounds up, and what only an int64 holds.
CHAINED = torch.tensor([0.0, 0.3, 0.9999, 2.99999, -0.2, 127.0, 256.0, -300.0, 65536.0, 3e9, -5e9])


def is_defined(x: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Where a cast is: C says nothing of floats that an integer cannot hold."""
    if not x.is_floating_point() or dtype.is_floating_point or dtype == torch.bool:
        return torch.ones(len(x), dtype=torch.bool)
    limits = torch.iinfo(dtype)
    return (x >= limits.min) & (x <= limits.max)


@pytest.mark.parametrize("middle", [*DTYPES, torch.bfloat16])
@pytest.mark.parametrize("given", DTYPES)
def test_a_cast_of_a_cast(given, middle):
    """onnxruntime makes one of two where that gives something else."""
    x = CHAINED[is_defined(CHAINED, given)].to(given)
    x = x[is_defined(x, middle)]
    inputs = tuple(x[is_defined(x.to(middle), wanted)] for wanted in DTYPES)

    def cast(*inputs: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return tuple(x.to(middle).to(to) for x, to in zip(inputs, DTYPES, strict=True))

    check(cast, inputs, exact=True)


@pytest.mark.parametrize(("wanted", "number"), [(torch.uint8, -3.0), (torch.int8, 300.0)])
def test_numbers_wrap_as_in_eager(wanted, number):
    check(lambda x: x.to(wanted), (torch.tensor([number, 1.0]),), exact=True)
    check(lambda x: x.to(wanted), (torch.tensor([int(number), 257]),), exact=True)


CASES = [
    (aten.to.dtype, lambda x: x.double()),
    (aten.to.dtype, lambda x: x.to(torch.int32, copy=True)),
    (aten.type_as.default, lambda x: x.type_as(torch.ones(1, dtype=torch.float16))),
    (None, lambda x: x.to(torch.ones(1, dtype=torch.int64))),
    (None, lambda x: x.to("cpu")),
    (None, lambda x: x.to("cpu", torch.float64)),
    (None, lambda x: torch.as_tensor(x, dtype=torch.float64)),
    (aten.detach.default, lambda x: x.detach() + 1),
    (aten.alias.default, lambda x: aten.alias(x) + 1),
    (aten.contiguous.default, lambda x: x.expand(2, *x.shape).t().contiguous() + 1),
    (aten.clone.default, lambda x: x.clone() * torch.tensor(2.0)),
]


@pytest.mark.parametrize(("target", "function"), CASES)
def test_matches_eager(target, function):
    check(function, (VALUES,), (VALUES[:1],), (VALUES[:0],), target=target)


@pytest.mark.parametrize(
    ("given", "wanted"),
    [(torch.int8, torch.uint8), (torch.uint32, torch.int32), (torch.bool, torch.uint8),
     (torch.int64, torch.int64)],
)  # fmt: skip
def test_bits_of_integers(given, wanted):
    x = torch.tensor([1, 0, 100, 127]).to(given)
    check(lambda x: x.view(wanted), (x,), exact=True)


def test_bits_of_floats_are_refused():
    program = export(lambda x: x.view(torch.int32), (VALUES,))
    with pytest.raises(LoweringFailed, match="cannot read the bits of float as int32"):
        translate(program, 20)


def over_a_fresh_value(x):
    y = x.sin()
    y.copy_(x[:1])
    return y


def over_a_product(x):  # which nobody reads before: nothing is traced again
    y = x * 2
    y.copy_(x.sum())
    return y


def over_rows(x):
    y = x * 1
    y[1:3].copy_(x[0])
    return y


def over_columns(x):
    y = torch.zeros(x.shape[0], 5, dtype=torch.int32)
    y[:, :3].copy_(x * 100.7)
    return y


@pytest.mark.parametrize("function", [over_a_fresh_value, over_a_product, over_rows, over_columns])
def test_what_is_copied_takes_the_shape_and_dtype_of_what_it_is_written_over(function):
    check(function, *[(torch.randn(n, 3),) for n in (4, 3, 7)])


@pytest.mark.parametrize("x", [torch.tensor(3), torch.tensor([2])])
def test_an_item_is_a_size(x):
    def function(x, y):
        n = x.item()
        torch._check(n >= 0)
        torch._check(n <= 4)
        return y[:n], y * n

    check(function, (x, torch.arange(4.0)), target=aten.item.default)
