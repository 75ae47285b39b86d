import pytest
import torch
from torch import nn

from torchferry.capturer.patches.item import PATCHES

INDICES = {
    "one": lambda x, i: (i,),
    "in the middle": lambda x, i: (slice(None), i),
    "after an integer": lambda x, i: (1, i),
    "last": lambda x, i: (..., i),
    "before the last": lambda x, i: (..., i, slice(1, 3)),
    "with a new axis": lambda x, i: (None, slice(None), i),
    "negative": lambda x, i: (slice(None), i - 4),
}


class Writes(nn.Module):
    def __init__(self, index, scalar=False):
        super().__init__()
        self.index, self.scalar = index, scalar

    def forward(self, x, i):
        y = x * 2
        index = self.index(x, i)
        y[index[0] if len(index) == 1 else index] = 7 if self.scalar else x[index].detach() - 1
        return y


def sets():
    return [(torch.rand(size, 4, 4), torch.tensor(i)) for size, i in ((4, 1), (5, 2))]


@pytest.mark.sample(4)
@pytest.mark.parametrize("scalar", [False, True])
@pytest.mark.parametrize("name", INDICES)
def test_an_item_that_a_tensor_chooses(captured, name, scalar):
    model = Writes(INDICES[name], scalar)
    found = captured(model, sets())
    assert PATCHES[0].subject in found.patches
    x = torch.rand(6, 4, 4)
    for i in (0, 3):
        got = found.program.module()(x=x, i=torch.tensor(i))
        torch.testing.assert_close(got, model(x, torch.tensor(i)))


def test_an_item_that_an_integer_chooses(captured):
    model = Writes(lambda x, i: (slice(None), i, None))
    found = captured(model, [(x, int(i)) for x, i in sets()])
    assert not found.fixed
    x = torch.rand(6, 4, 4)
    torch.testing.assert_close(found.program.module()(x=x, i=3), model(x, 3))


def test_without_it_the_number_is_asked_for():
    model, free = Writes(lambda x, i: (slice(None), i), True), torch.export.Dim.DYNAMIC
    with pytest.raises(Exception, match="Constraints violated"):  # of a private class
        torch.export.export(
            model, (torch.rand(4, 4, 4), 2), dynamic_shapes={"x": None, "i": free}, strict=False
        )


def test_other_indices_are_left_alone(captured):
    found = captured(Writes(lambda x, i: (slice(1, 3),), True), sets())
    assert PATCHES[0].subject not in found.patches
