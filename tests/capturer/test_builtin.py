"""Sizes that pass ``len``, ``int``, ``float``, ``min`` and so on."""

import builtins
import math

import pytest
import torch

from torchferry.capturer.builtin import symbolic_builtins

SPELLINGS = {
    "len": lambda x: x + torch.zeros(len(x), 1, 1),
    "len of a row": lambda x: x * len(x[0]),
    "int": lambda x: x.reshape(int(x.shape[0]), -1),
    "float": lambda x: x / float(x.shape[1]),
    "tensor of a float": lambda x: x * torch.tensor([float(x.shape[1])]),
    "int of a quotient": lambda x: x[:, : int(x.shape[1] / 2)],
    "int of a ceiling": lambda x: x * int(math.ceil(float(x.shape[1]) / 4) * 4),
    "divmod": lambda x: x * divmod(x.shape[1], 3)[0] + divmod(x.shape[2], 2)[1],
    "least of ratios": lambda x: x * min(7 / x.shape[1], 9 / x.shape[2]),
    "largest of three": lambda x: x[:, : int(max([x.shape[1] / 2, x.shape[2] / 3, 1.5]))],
    "least by a key": lambda x: x * min(x.shape[1:], key=lambda size: 3),
    "range of one step": lambda x: sum(
        x[:, i : i + 4] * (i + 1) for i in range(0, x.shape[1], x.shape[1])
    ),
    "range of two": lambda x: sum(x * i for i in range(x.shape[1], 3 * x.shape[1], x.shape[1])),
    "map": lambda x: x.reshape(-1, *map(int, x.shape[1:])),
    "LongTensor": lambda x: x * torch.LongTensor([x.shape[1], x.shape[2]]).sum(),
    "IntTensor of a shape": lambda x: x * torch.IntTensor(list(x.shape)).sum(),
    "FloatTensor": lambda x: x * torch.FloatTensor([x.shape[1], 3.5]).sum(),
    "sqrt": lambda x: x / math.sqrt(x.shape[1]) + int(math.sqrt(x.shape[2])),
    "a type": lambda x: x * 2 if isinstance(x.shape[0], int) else x,
    "other numbers": lambda x: x * int("3") + float(int(True)) + len([x]) + int.bit_length(9),
}


class Spelt(torch.nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, x):
        return self.function(x)


@pytest.mark.sample(5)
@pytest.mark.parametrize("name", SPELLINGS)
def test_a_size_stays_one(captured, name):
    sets = [(torch.rand(b, h, w),) for b, h, w in ((2, 5, 6), (3, 8, 10), (1, 7, 3))]
    found = captured(Spelt(SPELLINGS[name]), sets)
    x = torch.rand(4, 9, 2)
    torch.testing.assert_close(found.program.module()(x=x), SPELLINGS[name](x))


def test_names_are_as_before_afterwards():
    model = Spelt(SPELLINGS["len"])
    with symbolic_builtins(model):
        assert len(torch.ones(3, 2)) == 3
        assert len is not builtins.len
        assert int == builtins.int  # noqa: E721  (as a type of x is compared)
        assert {builtins.int: 1}[int] == 1
        assert isinstance(3, int)
        assert not isinstance("3", (int, float))
        assert issubclass(bool, int)
        assert isinstance(torch.LongTensor([1]), torch.LongTensor)
        assert math.sqrt(16) == 4
    assert len is builtins.len
    assert int is builtins.int
    with symbolic_builtins(model, apply=False):
        assert len is builtins.len


def test_a_block_that_raises_leaves_nothing():
    with pytest.raises(KeyError), symbolic_builtins(Spelt(None)):
        raise KeyError
    assert "len" not in globals()
    assert isinstance(torch.LongTensor, type)
