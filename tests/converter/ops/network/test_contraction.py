"""Einsum and its like against eager, at sizes other than those exported."""

import pytest
import torch
from op_case import check, export
from torch import nn

from torchferry.converter.translate import translate
from torchferry.errors import LoweringFailed

aten = torch.ops.aten
r = torch.randn

EQUATIONS = [
    ("bij,bjk->bik", [(2, 3, 4), (2, 4, 5)], ["MatMul"]),
    ("bhqd,bhkd->bhqk", [(2, 3, 4, 5), (2, 3, 6, 5)], ["Transpose", "MatMul"]),
    ("ji,jk->ik", [(3, 4), (3, 5)], ["Transpose", "MatMul"]),
    ("ij->ji", [(3, 4)], None),
    ("ii->i", [(3, 3)], None),
    ("ii", [(3, 3)], None),
    ("ij->", [(3, 4)], None),
    ("bd,bd->b", [(2, 3), (2, 3)], None),
    ("i,j->ij", [(3,), (4,)], None),
    ("b a, a C", [(2, 3), (3, 4)], None),
    ("...ij,...jk", [(2, 3, 4), (1, 4, 5)], None),
    ("...i,ij->...j", [(2, 6, 3), (3, 4)], None),
    ("...i->...", [(2, 3)], None),
    ("a...,b...->ab...", [(2, 3, 1), (4, 5)], None),
    ("abc,cd,ed->abe", [(2, 3, 4), (4, 5), (6, 5)], None),
]


@pytest.mark.parametrize(("equation", "shapes", "nodes"), EQUATIONS)
def test_einsum(equation, shapes, nodes):
    model = check(
        lambda *x: torch.einsum(equation, *x), [r(*s) for s in shapes],
        target=aten.einsum.default,
    )  # fmt: skip
    if nodes is not None:
        assert [node.op_type for node in model.graph] == nodes


EMPTY = [
    "bqhd,bkhd->bhqk", "bhqk,bkhd->bqhd", "bhqd,bhkd->bhqk", "bid,bjd->bij", "bnd,md->bnm",
    "ij,jk->ki", "bi,bi->b", "bn,bm->bnm", "btd,d->bt", "bchw,ck->bkhw", "ij,kl->lijk",
    "bxy,xyz->bz", "bhwc,hkc->bhwk", "i,i->", "ijk,jki->", "abc,cd,de->abe", "bi,oij,bj->bo",
    "iij,jk->ik", "ai,bj->ab", "nctkv,kvw->nctw", "abcd,cdef->abef", "b,bx->xb",
]  # fmt: skip


@pytest.mark.sample(6)
@pytest.mark.parametrize("equation", EMPTY)
def test_sizes_of_every_axis(equation):
    """onnxruntime's Einsum divides by sizes, and ends the process at 0."""
    terms = equation.split("->")[0].split(",")
    letters = sorted(set("".join(terms)))
    sets = []
    for changed in [None, *letters]:
        for size in (0, 1):
            sizes = {c: 3 + i for i, c in enumerate(letters)}
            sizes |= {changed: size} if changed else {}
            sets.append(tuple(r([sizes[c] for c in term]) for term in terms))
    check(lambda *x: torch.einsum(equation, *x), *sets, target=aten.einsum.default)


@pytest.mark.parametrize(
    ("equation", "shapes"),
    [
        ("bij,bjk->bik", [(1, 3, 4), (5, 4, 2)]), ("bij,bjk->bik", [(5, 3, 4), (1, 4, 2)]),
        ("bij,bjk->bik", [(5, 3, 1), (5, 4, 2)]), ("bij,bjk->bik", [(1, 1, 1), (1, 1, 1)]),
        ("ij,ij->j", [(1, 4), (3, 1)]), ("ij,ij->ij", [(1, 4), (3, 1)]),
        ("bhqd,bhkd->bhqk", [(2, 4, 3, 5), (2, 1, 6, 5)]),
        ("ij,jk,kl->il", [(2, 1), (3, 1), (4, 2)]),
    ],
)  # fmt: skip
def test_sizes_of_1_broadcast(equation, shapes):
    check(lambda *x: torch.einsum(equation, *x), [r(s) for s in shapes])


CASES = [
    (
        aten.einsum.default,
        lambda x, y: torch.einsum("bij,bkj->bik", x, y),
        [(r(2, 3, 4), r(2, 5, 4)), (r(1, 6, 4), r(1, 2, 4))],
    ),
    (
        aten.einsum.default,
        lambda x, y: torch.einsum("ij,ij->i", x, y),
        [(torch.arange(6).view(2, 3), torch.arange(6).view(2, 3))],
    ),
    (
        aten.einsum.default,
        lambda x, y: torch.einsum("ij,jk->ki", x, y),
        [(torch.ones(2, 3, dtype=torch.int8), torch.ones(3, 2, dtype=torch.int8))],
    ),
    (
        aten.einsum.default,
        lambda x, y: torch.einsum("ij,ij->j", x, y),
        [(r(2, 3).half(), r(2, 3).half())],
    ),
    (
        aten.tensordot.default,
        lambda x, y: torch.tensordot(x, y, 2),
        [(r(2, 3, 4), r(3, 4, 5)), (r(1, 3, 4), r(3, 4, 6))],
    ),
    (
        aten.tensordot.default,
        lambda x, y: torch.tensordot(x, y, ([0, -1], [2, 0])),
        [(r(2, 3, 4), r(4, 5, 2))],
    ),
    (aten.tensordot.default, lambda x, y: torch.tensordot(x, y, 0), [(r(2, 3), r(4))]),
    (aten.bilinear.default, nn.Bilinear(3, 4, 5), [(r(2, 3), r(2, 4)), (r(1, 3), r(1, 4))]),
    (aten.bilinear.default, nn.Bilinear(3, 4, 5, bias=False), [(r(2, 6, 3), r(2, 6, 4))]),
]


@pytest.mark.parametrize(("target", "function", "sets"), CASES)
def test_matches_eager(target, function, sets):
    check(function, *sets, target=target)


COMPLEX = [(torch.randn(n, 3, dtype=torch.complex64),) for n in (2, 4, 1)]


@pytest.mark.parametrize(
    "function",
    [
        lambda z: torch.einsum("ij,kj->ik", z, z), lambda z: torch.einsum("ij->j", z),
        lambda z: torch.einsum("ij,ij,ij->i", z, z, z),
        lambda z: torch.einsum("...j,...k->...jk", z, z.conj()),
        lambda z: torch.tensordot(z, z, ([1], [1])),
    ],
)  # fmt: skip
def test_complex_numbers(function):
    check(function, *COMPLEX)


def test_many_complex_tensors_are_refused():
    program = export(lambda z: torch.einsum("ij,ij,ij,ij->i", z, z, z, z), *COMPLEX)
    with pytest.raises(LoweringFailed, match="more than 3 complex tensors"):
        translate(program, 20)
