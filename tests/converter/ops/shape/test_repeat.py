"""Elements several times."""

import pytest
import torch
from op_case import check

aten = torch.ops.aten
ROWS = [(torch.randn(2, 3),), (torch.randn(5, 3),), (torch.randn(1, 3),), (torch.randn(0, 3),)]
PAIR = [(torch.randn(2), torch.randn(3)), (torch.randn(1), torch.randn(5)),
        (torch.randn(0), torch.randn(5))]  # fmt: skip
COUNTS = [
    (torch.randn(3, 2), torch.tensor([1, 0, 2])),
    (torch.randn(3, 2), torch.tensor([0, 4, 1])),
]

CASES = [
    (aten.expand.default, lambda x: x.expand(4, -1, 3), ROWS),
    (aten.expand.default, lambda x: x[:, None].expand(-1, 2, -1), ROWS),
    (aten.expand.default, lambda x: x[:1].expand(0, 3), [(torch.randn(2, 3),)]),
    (aten.expand.default, lambda x: x.expand(2, 3), [(torch.tensor(1),)]),
    (aten.broadcast_to.default, lambda x: torch.broadcast_to(x, (2, x.shape[0], 3)), ROWS),
    (aten.expand_as.default, lambda x: x[:1].expand_as(x), ROWS[:3]),
    (aten.broadcast_tensors.default, lambda x: torch.broadcast_tensors(x, x[:, :1], x[0]),
     ROWS[:3]),
    (aten.repeat.default, lambda x: x.repeat(2, 1, 3), ROWS),
    (aten.repeat.default, lambda x: x.repeat(0, 2), ROWS),
    (aten.repeat.default, lambda x: x.repeat(x.shape[0], 1), ROWS),
    (aten.repeat.default, lambda x: x.repeat(3), [(torch.tensor(1),)]),
    (aten.tile.default, lambda x: x.tile(2), ROWS),
    (aten.tile.default, lambda x: x.tile(2, 2, 1), ROWS),
    (aten.repeat_interleave.self_int, lambda x: x.repeat_interleave(2, 0), ROWS),
    (aten.repeat_interleave.self_int, lambda x: x.repeat_interleave(3, -1), ROWS),
    (aten.repeat_interleave.self_int, lambda x: x.repeat_interleave(2), ROWS),
    (aten.repeat_interleave.self_int, lambda x: x[:1].repeat_interleave(2, 0), ROWS[:3]),
    (aten.repeat_interleave.self_int, lambda x: x.repeat_interleave(2), [(torch.tensor(1),)]),
    (aten.repeat_interleave.self_Tensor, lambda x, n: x.repeat_interleave(n, 0), COUNTS),
    (aten.repeat_interleave.self_Tensor,
     lambda x, n: x.repeat_interleave(n.flatten()[:1], -1), COUNTS),
    (aten.repeat_interleave.Tensor, torch.repeat_interleave,
     [(torch.tensor([2, 0, 1]),), (torch.tensor([3]),), (torch.zeros(0, dtype=torch.long),)]),
    (aten.meshgrid.default, lambda x, y: torch.functional._VF.meshgrid([x, y]), PAIR),
    (aten.meshgrid.indexing, lambda x, y: torch.meshgrid(x, y, x, indexing="ij"), PAIR),
    (aten.meshgrid.indexing, lambda x, y: torch.meshgrid(x, y, y, indexing="xy"), PAIR),
    (aten.meshgrid.indexing, lambda x, y: torch.meshgrid(x[0], y, indexing="ij"), PAIR[:2]),
    (aten.cartesian_prod.default, lambda x, y: torch.cartesian_prod(x, y, x), PAIR),
    (aten.cartesian_prod.default, torch.cartesian_prod, [(torch.randn(3),)]),
]  # fmt: skip


@pytest.mark.parametrize(("target", "function", "sets"), CASES)
@pytest.mark.filterwarnings("ignore:torch.meshgrid")
def test_matches_eager(target, function, sets):
    check(function, *sets, target=target, exact=True)


@pytest.mark.parametrize("dtype", [torch.bool, torch.uint8, torch.float16, torch.complex64])
def test_any_dtype(dtype):
    def function(x):
        return x.expand(2, -1, -1), x.repeat(2, 2), x.repeat_interleave(2, 1)

    check(function, *[((x > 0).to(dtype),) for (x,) in ROWS[:3]])
