"""Programs that check their inputs, or print, compute what they compute without it."""

import pytest
import torch
from op_case import check, export, run

from torchferry.converter.translate import translate

aten = torch.ops.aten
SETS = [(torch.arange(10.0), torch.tensor(4)), (torch.arange(20.0), torch.tensor(7))]


def asserted(x, n):
    torch._assert_async((x >= 0).all())
    torch._assert_async((x >= 0).all(), "negative")
    return x + 1


def printed(x, n):
    aten._print("as it runs")
    return x + n


def constrained(x, n):
    size = n.item()
    aten.sym_constrain_range(size, min=0, max=9)
    return x[:size] + size


def as_a_size(x, n):
    size = n.item()
    aten.sym_constrain_range_for_size(size, min=2, max=20)
    return torch.zeros(size) + size


def checked(x, n):
    size = n.item()
    torch._check(size > 0, lambda: "nothing to keep")
    torch._check(size < x.shape[0])
    return x.split([size, x.shape[0] - size])


def written(x, n):
    torch._assert_async((x >= 0).all())
    y, size = x.clone(), n.item()
    torch._check(size >= 0)
    torch._check(size <= 10)
    y[:size] = 0
    return y


@pytest.mark.parametrize("function", [asserted, constrained, as_a_size, checked, written])
def test_checks(function):
    check(function, *SETS)


def test_a_check_leaves_no_node():
    model = translate(export(asserted, *SETS), 20)
    assert [node.op_type for node in model.graph] == ["Add"]


def test_what_is_printed_is_not():
    x, n = SETS[0]
    model = translate(export(printed, (x, n)), 20)
    torch.testing.assert_close(run(model, [x, n])[0], x + n)


@pytest.mark.parametrize(
    ("target", "arguments"),
    [
        (aten._functional_assert_async.msg, lambda x: ((x >= 0).all(), "negative")),
        (aten._functional_assert_scalar.default, lambda x: (True, "negative")),
        (aten._functional_sym_constrain_range.default, lambda x: (3, 0, 9)),
        (aten._functional_sym_constrain_range_for_size.default, lambda x: (3, 0, 9)),
    ],
)
def test_checks_that_return_a_number(target, arguments):
    """As what is left of the ones above when a program is traced as a function."""

    class Graph(torch.nn.Module):
        def forward(self, x):
            token = aten._make_dep_token()
            return x + target(*arguments(x), token) * 0

    check(Graph(), (torch.arange(3.0),), target=target)
