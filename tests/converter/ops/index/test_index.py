"""Elements by their places."""

import pytest
import torch
from op_case import check, export

from torchferry.converter.translate import translate

aten = torch.ops.aten
LONG = torch.long
CUBE = [(torch.randn(2, 3, 4),), (torch.randn(5, 3, 4),), (torch.randn(1, 3, 4),)]
X3 = [x for (x,) in CUBE]
I = torch.tensor([2, 0, -1])  # noqa: E741  (the name of an index)
J = torch.tensor([[1, 0, 3], [2, -2, 0]])
PICKED = [(X3[0], I), (X3[1], torch.tensor([1])), (X3[2], torch.zeros(0, dtype=LONG))]
MASKED = [(x, x > 0) for x in X3] + [(torch.randn(0, 3, 4), torch.zeros(0, 3, 4) > 0)]
ROWS = [(x, x[:, 0, 0] > 0) for x in X3]
PAIRS = [(x, (x > 0)[:, :, 0]) for x in X3]

CASES = [
    (aten.index.Tensor, lambda x, i: x[:, i], PICKED),
    (aten.index.Tensor, lambda x, i: x[..., i], PICKED),
    (aten.index.Tensor, lambda x, i: x[:, i.int()], PICKED),
    (aten.index.Tensor, lambda x, i: x[:, i, i], PICKED),
    (aten.index.Tensor, lambda x, i: x[:, i[:, None], i], PICKED),
    (aten.index.Tensor, lambda x, i: x[0 * i, :, i], PICKED),
    (aten.index.Tensor, lambda x, i: x[0 * i[:1, None], :, i], PICKED[:2]),
    (aten.index.Tensor, lambda x, i: x[-1 + 0 * i, i], PICKED),
    (aten.index.Tensor, lambda x, i: x[0 * i, i, i], PICKED),
    (aten.index.Tensor, lambda x, j: x[:, :, j], [(X3[0], J), (X3[1], J[:, :1])]),
    (aten.index.Tensor, lambda x, j: x[:, j.clamp(max=2), j], [(X3[0], J), (X3[1], J[:1, :])]),
    (aten.index.Tensor, lambda x, m: x[m], MASKED),
    (aten.index.Tensor, lambda x, m: x[m], ROWS),
    (aten.index.Tensor, lambda x, m: x[m], PAIRS),
    (aten.index.Tensor, lambda x, m: x[:, m[0]], MASKED[:3]),
    (aten.index.Tensor, lambda x, m: x[:, :, m[0, 0]], MASKED[:3]),
    (aten.index.Tensor, lambda x, m: x[m[:, :, 0], 1], MASKED[:3]),
    (aten._unsafe_index.Tensor, lambda x, i: aten._unsafe_index(x, [None, i]), PICKED),
    (aten.index_select.default, lambda x, i: x.index_select(1, i.abs()), PICKED),
    (aten.index_select.default, lambda x, i: x.index_select(-1, i[0].abs().int()), PICKED[:2]),
    (aten.index_select.default, lambda x, i: x[0, 0, 0].index_select(0, i[:1] * 0), PICKED[:1]),
    (aten.take.default, lambda x, i: x.take(i), PICKED),
    (aten.take.default, lambda x, i: x.take(i[:, None]), PICKED),
    (aten.gather.default, lambda x: x.gather(1, x[:, :2].argsort(1)), CUBE),
    (aten.gather.default, lambda x: x.gather(-1, x[:, :1].argsort(-1)), CUBE),
    (aten.gather.default, lambda x, i: x[0, 0, 0].gather(0, i[0] * 0), PICKED[:1]),
    (aten.gather.default, lambda x, i: x.flatten().gather(0, i.abs()), PICKED),
    (aten.take_along_dim.default, lambda x: x.take_along_dim(x.argsort(1), 1), CUBE[:1]),
    (aten.take_along_dim.default, lambda x: x.take_along_dim(x.argmax(), None), CUBE),
    (aten.take_along_dim.default, lambda x: x.take_along_dim(x[:1, :1].argsort(-1), -1), CUBE[:1]),
    (aten.take_along_dim.default, lambda x: x[:, :1].take_along_dim(x.argsort(-1), 2), CUBE[:1]),
]  # fmt: skip


@pytest.mark.parametrize(("target", "function", "sets"), CASES)
def test_matches_eager(target, function, sets):
    check(function, *sets, target=target, exact=True)


def test_complex_numbers():
    def function(x):
        z = torch.complex(x, -x)
        places = x[:, :2].argsort(1)
        return (
            z.gather(1, places), z.gather(-1, x[:, :1].argsort(-1)), z.take(places[0, 0]),
            z[0, 0, 0].gather(0, places[0, 0, :1] * 0), z.take_along_dim(x.argmax(), None),
        )  # fmt: skip

    check(function, *CUBE, exact=True)


DTYPES = [torch.bool, torch.uint8, torch.int16, torch.float16, torch.complex64]


@pytest.mark.parametrize("dtype", DTYPES)
def test_any_dtype(dtype):
    def function(x, i):
        return x[:, i], x[:, i, i], x[0 * i, :, i], x.take(i)

    check(function, *[((x * 9).to(dtype), i) for x, i in PICKED[:2]])


def test_one_index_is_one_node():
    for function, sets in ((lambda x, i: x[:, i], PICKED), (lambda x, m: x[m], ROWS)):
        model = translate(export(function, *sets), 20)
        assert [node.op_type for node in model.graph] in (["Gather"], ["Compress"])
