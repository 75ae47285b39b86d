"""A tensor with elements replaced."""

import pytest
import torch
from op_case import check, export

from torchferry.converter.translate import translate

aten = torch.ops.aten
LONG = torch.long
X3 = [torch.randn(2, 3, 4), torch.randn(5, 3, 4), torch.randn(1, 3, 4)]
CUBE = [(x,) for x in X3]
I = torch.tensor([2, 0, -2])  # noqa: E741  (the name of an index)
PICKED = [(X3[0], I), (X3[1], torch.tensor([1])), (X3[2], torch.zeros(0, dtype=LONG))]
MASKED = [(x, x > 0) for x in X3] + [(torch.randn(0, 3, 4), torch.zeros(0, 3, 4) > 0)]


def put(*indices, accumulate=False):
    """``index_put`` with what a function of (x, i) says about indices and values."""
    return lambda x, i: torch.index_put(x, *(f(x, i) for f in indices), accumulate=accumulate)


def at(places, value, accumulate=False):
    return put(places, value, accumulate=accumulate)


ONE = lambda x, i: torch.tensor(7.0)  # noqa: E731  (a name for a row)
FULL = lambda x, i: aten.index.Tensor(x, [i]) * 3  # noqa: E731  (a name for a row)

CASES = [
    at(lambda x, i: (0 * i,), ONE),
    at(lambda x, i: (0 * i, i), lambda x, i: torch.arange(4.0)),
    at(lambda x, i: (0 * i, i), ONE, accumulate=True),
    at(lambda x, i: (0 * i[:, None], i), lambda x, i: torch.arange(4.0), accumulate=True),
    at(lambda x, i: (0 * i, i, i), lambda x, i: i * 1.5),
]
BEHIND = [
    lambda x, i: aten.index_put(x, [None, i], torch.tensor(7.0)),
    lambda x, i: aten.index_put(x, [None, i], x[:, :1]),
    lambda x, i: aten.index_put(x, [None, i], x[:, :1], True),
    lambda x, i: aten.index_put(x, [None, None, i], torch.arange(3.0)[:, None]),
    lambda x, i: aten.index_put(x, [None, i, i], torch.tensor([2.0]), True),
    lambda x, i: aten.index_put(x, [0 * i, None, i], torch.arange(3.0)),
]
UNDER = [
    lambda x, m: aten.index_put(x, [m], torch.tensor(7.0)),
    lambda x, m: aten.index_put(x, [m], torch.tensor([7.0])),
    lambda x, m: aten.index_put(x, [m], torch.tensor(7.0), True),
    lambda x, m: aten.index_put(x, [m[:, 0, 0]], torch.tensor(7.0)),
    lambda x, m: aten.index_put(x, [m[:, :, 0]], torch.arange(4.0)),
    lambda x, m: aten.index_put(x, [None, m[:, :, 0].any(0)], torch.arange(4.0)),
    lambda x, m: aten.index_put(x, [m], x[m] * 2),
    lambda x, m: aten.index_put(x, [m[:, :, 0]], x[m[:, :, 0]] * 2, True),
    lambda x, m: aten.index_put(x, [m[:, :, 0].byte()], torch.arange(4.0)[None]),
]


@pytest.mark.parametrize("function", CASES + BEHIND)
def test_index_put(function):
    check(function, *PICKED, target=aten.index_put.default)


@pytest.mark.parametrize("function", UNDER)
def test_index_put_under_a_mask(function):
    check(function, *MASKED[:3], target=aten.index_put.default, exact=True)


def test_values_that_repeat_are_added():
    places = torch.tensor([1, 1, 1, 0])
    for dtype in (torch.float32, torch.float16, torch.int64, torch.int32, torch.bool):
        check(lambda x, v: torch.index_put(x, (places,), v, accumulate=True),
              (torch.zeros(2, 3).to(dtype), torch.ones(4, 1).to(dtype)))  # fmt: skip


def test_a_mask_is_one_node():
    model = translate(export(lambda x, m: torch.index_put(x, (m,), torch.tensor(0.0)),
                             *MASKED), 20)  # fmt: skip
    assert [node.op_type for node in model.graph] == ["Where"]


def test_assignment():
    def function(x, i):
        y = x.clone()
        y[:, i, 1] = 5
        y[x > 1] = 0
        y[..., i] += 1
        return y

    check(function, *PICKED, exact=True)


LINES = [
    (aten.index_add.default, lambda x, i: x.index_add(1, i.abs(), x[:, : len(i)], alpha=2)),
    (aten.index_add.default, lambda x, i: x.index_add(-1, i.abs(), x[..., : len(i)])),
    (aten.index_copy.default, lambda x, i: x.index_copy(1, i.abs(), x[:, : len(i)] * 2)),
    (aten.index_fill.int_Scalar, lambda x, i: x.index_fill(2, i, 5)),
    (aten.index_fill.int_Tensor, lambda x, i: x.index_fill(1, i, x.sum())),
    (aten.put.default, lambda x, i: torch.put(x, i, i * 1.5)),
    (aten.put.default, lambda x, i: torch.put(x, i, i * 1.5, accumulate=True)),
]


@pytest.mark.parametrize(("target", "function"), LINES)
@pytest.mark.parametrize("sets", [PICKED[:1], PICKED[1:2]])
def test_lines(target, function, sets):
    check(function, *sets, target=target)


@pytest.mark.filterwarnings("ignore:index_reduce")
def test_lines_of_a_dynamic_axis():
    def function(x, i, s):
        added = x.index_add(1, i, s), x.index_copy(1, i, s), x.index_fill(0, i, 2.0)
        return *added, x.index_reduce(1, i, s, "amax"), x.index_reduce(1, i, s, "mean")

    sets = [(torch.randn(n, 4), torch.arange(k) % 2, torch.randn(n, k))
            for n, k in ((3, 2), (4, 3), (2, 1))]  # fmt: skip
    sets[1] = (sets[1][0], torch.tensor([2, 0, 1]), sets[1][2])
    check(function, *sets)


@pytest.mark.filterwarnings("ignore:index_reduce")
@pytest.mark.parametrize("reduce", ["prod", "mean", "amax", "amin"])
@pytest.mark.parametrize("include_self", [True, False])
def test_index_reduce(reduce, include_self):
    places = torch.tensor([0, 2, 0])
    for dtype in (torch.float32, torch.int64):
        check(lambda x, s: x.index_reduce(1, places, s, reduce, include_self=include_self),
              ((torch.randn(2, 4) * 9).to(dtype), (torch.randn(2, 3) * 9).to(dtype)),
              target=aten.index_reduce.default)  # fmt: skip


def test_scalars():
    zero = torch.tensor(0)

    def function(x, s):
        return (x.index_add(0, zero, s), x.index_copy(0, zero, s), x.index_fill(0, zero, 2),
                torch.put(x, zero, s))  # fmt: skip

    check(function, (torch.tensor(1.5), torch.tensor(2.5)))


@pytest.mark.parametrize("sets", [MASKED])
def test_masked_scatter(sets):
    check(lambda x, m: x.masked_scatter(m, x.flip(0)), *sets,
          target=aten.masked_scatter.default, exact=True)  # fmt: skip
    check(lambda x, m: x.masked_scatter(m[:, :, :1], x), *sets, exact=True)


@pytest.mark.parametrize("dtype", [torch.bool, torch.uint8, torch.float16, torch.complex64])
def test_any_dtype(dtype):
    function = lambda x, i: (  # noqa: E731  (a name for a row)
        aten.index_put(x, [None, i], x[:, :1]), aten.index_put(x, [0 * i, i], x[0, 0])
    )  # fmt: skip
    check(function, *[((x * 9).to(dtype), i) for x, i in PICKED[:2]])


def test_complex_numbers():
    def function(x, i):
        z = torch.complex(x, -x)
        line = z[:, : len(i)] * 2
        places = torch.index_put(z, (0 * i, i.abs()), z[0, 0], accumulate=True)
        masked = z.masked_scatter(x > 0, z.flip(0)), torch.put(z, i, i * 1j)
        return z.index_copy(1, i.abs(), line), places, *masked

    check(function, *PICKED[:1])
    check(function, *PICKED[1:2])
