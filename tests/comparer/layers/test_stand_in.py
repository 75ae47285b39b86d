import pytest
import torch
from torch import nn

from torchferry.comparer.layers.stand_in import StandIns, product_weights


class Several(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(7, 4)
        self.up = nn.Linear(4, 6)
        self.down = nn.Linear(6, 4, bias=False)
        self.matrix = nn.Parameter(torch.randn(4, 4))
        self.measured = nn.Linear(4, 4)
        self.head = nn.Linear(4, 7, bias=False)
        self.head.weight = self.table.weight

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        x = self.down(self.up(self.table(ids))) @ self.matrix
        y: torch.Tensor = self.head(self.measured(x) * self.measured.weight.sum())
        return y


def test_weights_that_are_used_in_products_alone() -> None:
    program = torch.export.export(Several(), (torch.ones(2, 3, dtype=torch.int64),))
    assert product_weights(program) == {"up.weight", "down.weight", "matrix"}


@pytest.mark.parametrize(("given", "width"), [(6, 6), (6, 4), (6, 3), (4, 7), (3, 9), (1, 2)])
@pytest.mark.parametrize("bias", [False, True])
def test_what_stands_in_hangs_on_all_it_is_given(given: int, width: int, bias: bool) -> None:
    layer = nn.Linear(given, width, bias=bias).requires_grad_(False)
    mode = StandIns()
    weight = mode.stand_in("a", layer.weight)
    assert weight.shape == layer.weight.shape
    assert weight.untyped_storage().nbytes() == 4
    assert mode.stand_in("a", layer.weight) is weight
    x = torch.randn(1, 2, given)
    with mode:
        found = [torch.nn.functional.linear(x, weight, layer.bias) for _ in range(2)]
        moved = [torch.nn.functional.linear(x + one, weight, layer.bias)
                 for one in torch.eye(given)]  # fmt: skip
    assert found[0].shape == (1, 2, width)
    assert torch.equal(*found)
    assert not any(torch.equal(found[0], one) for one in moved)


def test_each_name_has_another_and_other_weights_are_as_they_are() -> None:
    mode, plain = StandIns(), torch.randn(8, 8)
    weights = [mode.stand_in(name, plain) for name in "ab"]
    x = torch.randn(3, 8)
    with mode:
        one, other, same = [x @ weight.T for weight in (*weights, plain)]
    assert not torch.equal(one, other)
    assert torch.equal(same, x @ plain.T)


def test_without_the_mode_it_is_a_weight_like_others() -> None:
    weight = StandIns().stand_in("a", torch.randn(5, 4))
    assert (torch.ones(2, 4) @ weight.T).shape == (2, 5)
