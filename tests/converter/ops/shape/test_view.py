"""The same elements in another shape."""

import pytest
import torch
from op_case import check, export

from torchferry.converter.translate import translate

aten = torch.ops.aten


def sized(*shapes):
    """One tensor for each shape."""
    return [(torch.randn(*shape),) for shape in shapes]


ROWS = sized((2, 3, 4), (5, 3, 4), (1, 3, 4), (0, 3, 4))
BOTH = sized((2, 3, 4), (5, 1, 4), (1, 3, 4), (0, 2, 4))

CASES = [
    (aten.view.default, lambda x: x.view(-1), BOTH),
    (aten.view.default, lambda x: x.view(x.shape[0], -1), BOTH[:3]),
    (aten.view.default, lambda x: x.view(x.shape[0], x.shape[1], 2, -1), BOTH[:3]),
    (aten.view.default, lambda x: x.view(-1, 2), BOTH),
    (aten.view.default, lambda x: x.view(4, -1), BOTH),
    (aten.view.default, lambda x: x.view(2, x.shape[0] * 2, x.shape[1]), BOTH),
    (aten.view.default, lambda x: x.view(1), [(torch.tensor(2.0),)]),
    (aten.view.default, lambda x: x.view(()), [(torch.randn(1, 1),)]),
    (aten.view.default, lambda x: x.view(0, 7), [(torch.zeros(3, 0),)]),
    (aten.reshape.default, lambda x: x.reshape(12, -1), ROWS),
    (aten.view_as.default, lambda x, y: x.view_as(y),
     [(torch.randn(2, 6), torch.randn(4, 3)), (torch.randn(3, 6), torch.randn(6, 3))]),
    (aten.reshape_as.default, lambda x: x.reshape_as(x.flatten()), ROWS),
    (aten.ravel.default, lambda x: x.ravel(), BOTH),
    (aten.flatten.using_ints, lambda x: x.flatten(1), BOTH),
    (aten.flatten.using_ints, lambda x: x.flatten(0, 1), BOTH),
    (aten.flatten.using_ints, lambda x: x.flatten(-2), BOTH),
    (aten.flatten.using_ints, lambda x: x.flatten(1, 1), BOTH),
    (aten.flatten.using_ints, lambda x: x.flatten(), [(torch.tensor(True),)]),
    (aten.unflatten.int, lambda x: x.unflatten(-1, (2, -1)), BOTH),
    (aten.unflatten.int, lambda x: x.unflatten(1, (1, 3)), ROWS),
    (aten.squeeze.default, lambda x: x.squeeze(), sized((1, 3, 1), (1, 4, 1))),
    (aten.squeeze.default, lambda x: x.squeeze(), [(torch.tensor(3),)]),
    (aten.squeeze.dim, lambda x: x.squeeze(-1), sized((2, 1), (3, 1))),
    (aten.squeeze.dim, lambda x: x.squeeze(0), [(torch.tensor(3),)]),
    (aten.squeeze.dim, lambda x: x.squeeze(1), ROWS),
    (aten.squeeze.dims, lambda x: torch.squeeze(x, (0, -1, 1)), sized((1, 3, 1), (1, 4, 1))),
    (aten.unsqueeze.default, lambda x: x.unsqueeze(-1), ROWS),
    (aten.unsqueeze.default, lambda x: x.unsqueeze(-4), ROWS),
    (aten.atleast_1d.default, torch.atleast_1d, [(torch.tensor(1.0),)]),
    (aten.atleast_2d.default, torch.atleast_2d, sized((3,), (5,))),
    (aten.atleast_3d.default, torch.atleast_3d, sized((3, 2), (5, 2))),
    (aten.atleast_3d.default, torch.atleast_3d, sized((3,), (5,))),
    (aten.atleast_2d.Sequence, lambda x, y: torch.atleast_2d([x, y]),
     [(torch.tensor(1), torch.randn(3))]),
]  # fmt: skip


@pytest.mark.parametrize(("target", "function", "sets"), CASES)
def test_matches_eager(target, function, sets):
    check(function, *sets, target=target, exact=True)


@pytest.mark.parametrize("dtype", [torch.bool, torch.int8, torch.float16, torch.complex64])
def test_any_dtype(dtype):
    def function(x):
        y = x.view(-1, 6).unsqueeze(1).flatten(1)
        return y.reshape(x.shape[0], 2, -1), torch.atleast_3d(x), x[:, :1].squeeze(1)

    check(function, (torch.ones(4, 6).to(dtype),), (torch.ones(1, 6).to(dtype),))


def test_a_symbolic_shape_is_one_node():
    program = export(lambda x: x.view(*x.shape[:-1], -1, 2).flatten(2), *BOTH)
    assert [n.op_type for n in translate(program, 20).graph] == ["Reshape", "Reshape"]
