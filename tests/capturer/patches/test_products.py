import pytest
import torch

from torchferry.capturer.patches.products import PATCHES


class Kron(torch.nn.Module):
    def forward(self, x, y):
        return torch.kron(x, y)


@pytest.mark.parametrize(
    ("left", "right"),
    [
        (((2, 5), (3, 4), (1, 7), (1, 1)), ((3, 6), (2, 9), (5, 1), (1, 1))),
        (((2, 5, 3), (3, 4, 2), (1, 1, 6)), ((4, 2), (5, 3), (1, 7))),
        (((5,), (4,), (1,)), ((2, 3), (3, 5), (1, 2))),
    ],
)
def test_sizes_of_a_product_are_those_of_the_call(captured, left, right):
    sets = [(torch.rand(a), torch.rand(b)) for a, b in zip(left, right, strict=True)]
    found = captured(Kron(), sets)
    assert found.patches == (PATCHES[0].subject,)


def test_upstream_still_fixes_them_and_integers_stay_integers():
    assert PATCHES[0].needed()
    kron = PATCHES[0].replace(None)
    x, y = torch.arange(6).reshape(2, 3), torch.arange(4).reshape(2, 2)
    assert kron(x, y).equal(torch.kron(x, y))
    assert kron(x[0, 0], y).equal(torch.kron(x[0, 0], y))
