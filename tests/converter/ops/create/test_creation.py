"""Tensors made of sizes and numbers, against eager."""

import pytest
import torch
from op_case import check

aten = torch.ops.aten
X = [(torch.ones(n, 3),) for n in (2, 5, 1, 0)]
DTYPES = (torch.float32, torch.float16, torch.float64, torch.int64, torch.int32, torch.uint8,
          torch.bool)  # fmt: skip

# Of the symbolic size n of the input.
SIZED = [
    (aten.zeros.default, lambda x, n: torch.zeros(n, 2)),
    (aten.ones.default, lambda x, n: torch.ones(n, n, dtype=torch.int32)),
    (aten.empty.memory_format, lambda x, n: torch.empty(n, 2).zero_()),
    (aten.full.default, lambda x, n: torch.full((n, 2), 7)),
    (aten.full.default, lambda x, n: torch.full((2,), n)),
    (aten.full.default, lambda x, n: torch.full((2, n), n, dtype=torch.float32)),
    (aten.full.default, lambda x, n: torch.full((n,), True)),
    (aten.full.default, lambda x, n: torch.full((), 2.5)),
    (aten.new_zeros.default, lambda x, n: x.new_zeros(n)),
    (aten.new_ones.default, lambda x, n: x.new_ones((n, 2), dtype=torch.int64)),
    (aten.new_full.default, lambda x, n: x.new_full((n, 2), n)),
    (aten.zeros_like.default, lambda x, n: torch.zeros_like(x)),
    (aten.ones_like.default, lambda x, n: torch.ones_like(x, dtype=torch.bool)),
    (aten.full_like.default, lambda x, n: torch.full_like(x, 3)),
    (aten.full_like.default, lambda x, n: torch.full_like(x, n, dtype=torch.int64)),
    (None, lambda x, n: x.clone().fill_(2.5)),
    (None, lambda x, n: x.clone().fill_(x.sum())),
    (aten.scalar_tensor.default, lambda x, n: torch.scalar_tensor(3) + x),
    (aten.scalar_tensor.default, lambda x, n: aten.scalar_tensor(n) + x.long()),
    (None, lambda x, n: torch.tensor(n) * 2),
    (aten.arange.default, lambda x, n: torch.arange(n)),
    (aten.arange.default, lambda x, n: torch.arange(n, dtype=torch.float32)),
    (aten.arange.start, lambda x, n: torch.arange(1, n + 1)),
    (aten.arange.start_step, lambda x, n: torch.arange(0, n, 2)),
    (aten.arange.start_step, lambda x, n: torch.arange(n, 0, -1)),
    (aten.arange.start_step, lambda x, n: torch.arange(0, n, 0.5)),
    (aten.arange.start, lambda x, n: torch.arange(0.5, n + 0.9, dtype=torch.int64)),
    (aten.arange.start, lambda x, n: torch.arange(-0.5, n + 0.2, dtype=torch.int64)),
    (aten.arange.start_step, lambda x, n: torch.arange(0.5, n + 0.9, 1.5, dtype=torch.int64)),
    (aten.arange.start_step, lambda x, n: torch.arange(0.5, n + 0.9, 1.5, dtype=torch.int32)),
    (aten.arange.start_step, lambda x, n: torch.arange(n + 0.7, -2.2, -1.8, dtype=torch.int32)),
    (aten.arange.start_step, lambda x, n: torch.arange(0.5, n + 0.9, 1.5)),
    (aten.linspace.default, lambda x, n: torch.linspace(0, n, 5)),
    (aten.eye.default, lambda x, n: torch.eye(n)),
    (aten.eye.m, lambda x, n: torch.eye(n, 3, dtype=torch.int64)),
]  # fmt: skip

FIXED = [
    (aten.arange.start_step, lambda: torch.arange(0, 1, 0.1)),
    (aten.arange.start_step, lambda: torch.arange(0, 0.3, 0.1)),
    (aten.arange.start_step, lambda: torch.arange(5, -5, -3, dtype=torch.int32)),
    (aten.arange.default, lambda: torch.arange(3000)),
    (aten.arange.default, lambda: torch.arange(3000.5)),
    (aten.arange.default, lambda: torch.arange(5.5, dtype=torch.int64)),
    (aten.arange.default, lambda: torch.arange(3000.5, dtype=torch.int64)),
    (aten.arange.start_step, lambda: torch.arange(0.0, -3.5, -1.0, dtype=torch.int64)),
    (aten.arange.start_step, lambda: torch.arange(0.5, 4000.4, 1.5, dtype=torch.int64)),
    (aten.arange.start_step, lambda: torch.arange(0.5, 4000.4, 1.5, dtype=torch.int32)),
    (aten.arange.default, lambda: torch.arange(7, dtype=torch.float16)),
    (aten.linspace.default, lambda: torch.linspace(3, 10, 5)),
    (aten.linspace.default, lambda: torch.linspace(0, 10, 4, dtype=torch.int64)),
    (aten.linspace.default, lambda: torch.linspace(0, 10, 2000)),
    (aten.linspace.default, lambda: torch.linspace(2, 3, 1)),
    (aten.logspace.default, lambda: torch.logspace(0, 2, 5)),
    (aten.eye.default, lambda: torch.eye(0)),
    (aten.tril_indices.default, lambda: torch.tril_indices(3, 4, -1)),
    (aten.triu_indices.default, lambda: torch.triu_indices(3, 4, 1)),
    (aten.empty_strided.default, lambda: torch.empty_strided((2, 3), (3, 1)).zero_()),
    (aten.logspace.default, lambda: torch.logspace(-1, 1, 2000, base=2)),
]  # fmt: skip


@pytest.mark.parametrize(("target", "function"), SIZED)
def test_sizes_of_an_input(target, function):
    check(lambda x: function(x, x.shape[0]), *X, target=target)


@pytest.mark.parametrize(("target", "function"), FIXED)
def test_numbers_alone(target, function):
    check(lambda x: (function(), x + 1), X[0], target=target)


@pytest.mark.parametrize("dtype", DTYPES)
def test_each_dtype(dtype):
    def function(x):
        n = x.shape[0]
        filled = torch.full((n, 2), 1, dtype=dtype), torch.full_like(x, 1, dtype=dtype)
        return *filled, torch.eye(n, dtype=dtype), torch.zeros(n, dtype=dtype)

    check(function, *X)


def test_a_size_is_a_number_in_promotion():
    """float16 times a size stays float16; a tensor of the size counts as a tensor."""
    check(lambda x: x.half() * x.shape[0], *X)
    check(lambda x: x.half() * aten.scalar_tensor(x.shape[0]), *X)
