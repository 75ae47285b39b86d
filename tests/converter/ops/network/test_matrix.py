"""Products of matrices against eager, at sizes other than those exported."""

import pytest
import torch
from op_case import check
from torch import nn

aten = torch.ops.aten
r = torch.randn


def ints(*sizes, dtype=torch.int64):
    return torch.randint(-9, 9, sizes, dtype=dtype)


PAIR = (r(2, 3), r(3, 4)), (r(1, 3), r(3, 4)), (r(0, 3), r(3, 4))
BATCH = (r(2, 3, 4), r(2, 4, 5)), (r(1, 6, 4), r(1, 4, 5))
THREE = (r(2, 5), r(2, 3), r(3, 5)), (r(1, 5), r(1, 3), r(3, 5))
NAN = torch.full((2, 5), torch.nan)

CASES = [
    (
        aten.linear.default,
        nn.functional.linear,
        [(r(2, 3), r(4, 3), r(4)), (r(0, 3), r(4, 3), r(4))],
    ),
    (
        aten.linear.default,
        nn.functional.linear,
        [(r(2, 5, 3), r(4, 3), r(4)), (r(1, 2, 3), r(4, 3), r(4))],
    ),
    (aten.linear.default, nn.functional.linear, [(r(3), r(4, 3), r(4))]),
    (aten.linear.default, nn.functional.linear, [(r(2, 3), r(3))]),
    (aten.linear.default, nn.functional.linear, [(ints(2, 3), ints(4, 3), ints(4))]),
    (
        aten.linear.default,
        lambda x, w: nn.functional.linear(x.half(), w.half()),
        [(r(2, 3), r(4, 3))],
    ),
    (aten.matmul.default, torch.matmul, [(r(3), r(3))]),
    (aten.matmul.default, torch.matmul, [(r(3), r(2, 3, 4)), (r(3), r(1, 3, 4))]),
    (aten.matmul.default, torch.matmul, [(r(2, 5, 3), r(3)), (r(1, 4, 3), r(3))]),
    (
        aten.matmul.default,
        torch.matmul,
        [(r(2, 1, 3, 4), r(5, 4, 2)), (r(1, 1, 6, 4), r(5, 4, 2))],
    ),
    (aten.matmul.default, torch.matmul, [(ints(2, 3), ints(3, 4))]),
    (
        aten.matmul.default,
        torch.matmul,
        [(ints(2, 3, dtype=torch.int8), ints(3, 4, dtype=torch.int8))],
    ),
    (aten.matmul.default, torch.matmul, [(r(2, 0), r(0, 3))]),
    (aten.mm.default, torch.mm, PAIR),
    (aten.bmm.default, torch.bmm, BATCH),
    (
        aten.bmm.default,
        torch.bmm,
        [(ints(2, 3, 4, dtype=torch.int32), ints(2, 4, 5, dtype=torch.int32))],
    ),
    (aten.mv.default, torch.mv, [(r(2, 3), r(3)), (r(1, 3), r(3))]),
    (aten.matmul.default, lambda m, v: m.mT @ v, [(r(3, 2), r(3)), (r(3, 1), r(3))]),
    (aten.dot.default, torch.dot, [(r(3), r(3)), (r(1), r(1))]),
    (aten.vdot.default, torch.vdot, [(r(3), r(3))]),
    (aten.inner.default, torch.inner, [(r(2, 3), r(4, 5, 3)), (r(1, 3), r(2, 5, 3))]),
    (aten.inner.default, torch.inner, [(r(2, 3), r(3))]),
    (aten.inner.default, torch.inner, [(r(2, 3), r(()))]),
    (aten.outer.default, torch.outer, [(r(2), r(3)), (r(1), r(4))]),
    (aten.outer.default, torch.outer, [(torch.tensor([True, False]), torch.tensor([True, True]))]),
    (aten.outer.default, torch.outer, [(ints(2), r(3))]),
    (aten.linalg_multi_dot.default, lambda *t: torch.linalg.multi_dot(t), [(r(3), r(3, 4), r(4))]),
    (
        aten.linalg_multi_dot.default,
        lambda *t: torch.linalg.multi_dot(t),
        [(r(2, 3), r(3, 4), r(4, 5))],
    ),
    (aten.addmm.default, torch.addmm, THREE),
    (aten.addmm.default, lambda *t: torch.addmm(*t, beta=0.5, alpha=2), THREE),
    (aten.addmm.default, lambda x, y: torch.addmm(NAN, x, y, beta=0), [(r(2, 3), r(3, 5))]),
    (
        aten.addmm.default,
        lambda *t: torch.addmm(*t, beta=2, alpha=3),
        [(ints(5), ints(2, 3), ints(3, 5))],
    ),
    (aten.addmv.default, lambda *t: torch.addmv(*t, beta=0.5), [(r(2), r(2, 3), r(3))]),
    (
        aten.baddbmm.default,
        lambda *t: torch.baddbmm(*t, beta=2, alpha=0.5),
        [(r(2, 3, 5), r(2, 3, 4), r(2, 4, 5))],
    ),
    (
        aten.addbmm.default,
        torch.addbmm,
        [(r(3, 5), r(2, 3, 4), r(2, 4, 5)), (r(3, 5), r(1, 3, 4), r(1, 4, 5))],
    ),
    (aten.addr.default, lambda *t: torch.addr(*t, alpha=3), [(r(2, 3), r(2), r(3))]),
    (aten.addr.default, torch.addr, [(r(2, 3) > 0, r(2) > 0, r(3) > 0)]),
]


@pytest.mark.parametrize(("target", "function", "sets"), CASES)
def test_matches_eager(target, function, sets):
    check(function, *sets, target=target)


def test_complex_matrices():
    pair = r(2, 3, dtype=torch.complex64), r(3, 2, dtype=torch.complex64)
    check(torch.matmul, pair, target=aten.matmul.default, tolerance=1e-5)


def test_a_linear_layer_is_one_or_two_nodes():
    assert len(list(check(nn.Linear(3, 4), (r(2, 3),)).graph)) == 1
    assert len(list(check(nn.Linear(3, 4), (r(2, 5, 3),)).graph)) == 2
