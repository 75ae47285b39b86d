"""Elements written, or reduced, into places."""

import pytest
import torch
from op_case import check

aten = torch.ops.aten
NAN = float("nan")


def sets(dtype=torch.float32):
    """x, index and src; src is larger than index."""
    made = []
    for rows, count in ((3, 4), (5, 6), (1, 2)):
        index = torch.arange(rows * count).reshape(rows, count) * 7 % 5
        x, src = torch.randn(rows, 5) * 5, torch.randn(rows, 7) * 5
        made.append((x.to(dtype), index, src.to(dtype)))
    return made


PERMUTED = [(torch.randn(3, 4), torch.randn(3, 4).argsort(1), torch.randn(3, 4)),
            (torch.randn(2, 6), torch.randn(2, 6).argsort(1), torch.randn(2, 6))]  # fmt: skip
SCATTERS = [
    (aten.scatter.value, lambda x, i, s: x.scatter(1, i, 2.5), sets()),
    (aten.scatter.src, lambda x, i, s: x.scatter(-1, i, s), PERMUTED),
    (aten.scatter.src, lambda x, i, s: x.scatter(1, i[:, :0], s), PERMUTED),
    (aten.scatter.reduce, lambda x, i, s: x.scatter(1, i, s, reduce="add"), sets()),
    (aten.scatter.reduce, lambda x, i, s: x.scatter(1, i, s, reduce="multiply"), sets()),
    (aten.scatter.value_reduce, lambda x, i, s: x.scatter(1, i, 2.0, reduce="multiply"), sets()),
    (aten.scatter_add.default, lambda x, i, s: x.scatter_add(1, i, s), sets()),
    (aten.scatter_add.default, lambda x, i, s: x.scatter_add(1, i, s), sets(torch.int32)),
    (aten.scatter_add.default, lambda x, i, s: x.scatter_add(1, i, s), sets(torch.bool)),
    (aten.scatter_add.default, lambda x, i, s: x[0].scatter_add(0, i[0], s[0]), sets()),
    (aten.scatter.src, lambda x, i, s: x.sum().scatter(0, i[0, 0] * 0, s[0, 0]), sets()),
    (aten.scatter.value, lambda x, i, s: x.sum().scatter(0, i[0, :1] * 0, 2.0), sets()),
]


@pytest.mark.parametrize(("target", "function", "inputs"), SCATTERS)
@pytest.mark.filterwarnings("ignore:The reduce argument")
def test_scatter(target, function, inputs):
    check(function, *inputs, target=target)


def test_complex_numbers():
    def function(x, i, s):
        z, w = torch.complex(x, -x), torch.complex(s, s + 1)
        made = z.scatter(1, i, 2.5), z.scatter(1, i[:, :0], w), z.scatter_add(1, i, w)
        ones = z[0].scatter(0, i[0, :1], 1j), z.sum().scatter(0, i[0, 0] * 0, w[0, 0])
        return *made, *ones, z.scatter(1, i[:, :1], w)

    check(function, *sets())


@pytest.mark.parametrize("reduce", ["sum", "prod", "mean", "amax", "amin"])
@pytest.mark.parametrize("include_self", [True, False])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.int64])
def test_scatter_reduce(reduce, include_self, dtype):
    check(lambda x, i, s: x.scatter_reduce(1, i, s, reduce, include_self=include_self),
          *sets(dtype), target=aten.scatter_reduce.two)  # fmt: skip


@pytest.mark.parametrize("reduce", ["amax", "amin", "sum", "mean"])
@pytest.mark.parametrize("include_self", [True, False])
def test_nan_spreads(reduce, include_self):
    x = torch.tensor([NAN, 1.0, 2.0, NAN, torch.inf, 0.0])
    index = torch.tensor([0, 1, 1, 2, 2, 4])
    src = torch.tensor([1.0, NAN, 5.0, -torch.inf, 7.0, 3.0])
    check(lambda x, s: x.scatter_reduce(0, index, s, reduce, include_self=include_self), (x, src))


@pytest.mark.parametrize("reduce", ["sum", "prod", "amax", "amin"])
@pytest.mark.parametrize("dtype", [torch.bool, torch.uint8, torch.int8, torch.int16])
def test_small_integers(reduce, dtype):
    check(lambda x, i, s: x.scatter_reduce(1, i, s, reduce, include_self=False), *sets(dtype))
