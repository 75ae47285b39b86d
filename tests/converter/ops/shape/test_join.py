"""Several tensors as one."""

import pytest
import torch
from op_case import check

aten = torch.ops.aten
TWO = [(torch.randn(2, 3), torch.randn(4, 3)), (torch.randn(1, 3), torch.randn(5, 3)),
       (torch.randn(0, 3), torch.randn(2, 3))]  # fmt: skip
SAME = [(torch.randn(2, 3), torch.randn(2, 3)), (torch.randn(5, 3), torch.randn(5, 3)),
        (torch.randn(0, 3), torch.randn(0, 3))]  # fmt: skip
LINES = [(torch.randn(3), torch.randn(3)), (torch.randn(1), torch.randn(1))]
MIXED = [(torch.ones(2, 3), torch.ones(2, 3, dtype=torch.int64))]

CASES = [
    (aten.cat.default, lambda x, y: torch.cat([x, y]), TWO),
    (aten.cat.default, lambda x, y: torch.cat([x, y], -1), SAME),
    (aten.cat.default, lambda x, y: torch.cat([x, y, x > 0]), MIXED),
    (aten.cat.default, lambda x, y: torch.cat([torch.zeros(0), x, y]), TWO),
    (aten.cat.default, lambda x, y: torch.cat([x]), MIXED),
    (aten.concat.default, lambda x, y: torch.concat([x, y]), TWO),
    (aten.concatenate.default, lambda x, y: torch.concatenate([x, y]), TWO),
    (aten.stack.default, lambda x, y: torch.stack([x, y]), SAME),
    (aten.stack.default, lambda x, y: torch.stack([x, y], -1), SAME),
    (aten.stack.default, lambda x, y: torch.stack([x.sum(), y.sum().long()]), MIXED),
    (aten.hstack.default, lambda x, y: torch.hstack([x, y]), SAME),
    (aten.hstack.default, lambda x, y: torch.hstack([x, y]), LINES),
    (aten.vstack.default, lambda x, y: torch.vstack([x, y]), TWO),
    (aten.vstack.default, lambda x, y: torch.vstack([x, y]), LINES),
    (aten.dstack.default, lambda x, y: torch.dstack([x, y]), SAME),
    (aten.column_stack.default, lambda x, y: torch.column_stack([x, y]), LINES),
    (aten.column_stack.default, lambda x, y: torch.column_stack([x, y[:, 0]]), SAME),
    (aten.block_diag.default, lambda x, y: torch.block_diag(x, y[0], y[0, 0]), TWO[:2]),
    (aten.block_diag.default, lambda x, y: torch.block_diag(x.short(), y.short()), SAME),
    (aten.kron.default, torch.kron, TWO[:1]),
    (aten.kron.default, lambda x, y: torch.kron(x[0] > 0, y > 0), TWO[:1]),
]  # fmt: skip


@pytest.mark.parametrize(("target", "function", "sets"), CASES)
def test_matches_eager(target, function, sets):
    check(function, *sets, target=target, exact=True)


@pytest.mark.parametrize("dtype", [torch.bool, torch.int8, torch.float16, torch.complex64])
def test_any_dtype(dtype):
    def function(x, y):
        return torch.cat([x, y], 1), torch.stack([x, y], 1)

    check(function, *[tuple((t > 0).to(dtype) for t in both) for both in SAME[:2]])


def test_real_and_complex_are_complex():
    def function(x, y):
        z = torch.complex(y, y + 1)
        return torch.cat([x, z]), torch.stack([z, x], 1), torch.hstack([x.double(), z])

    check(function, *SAME)
