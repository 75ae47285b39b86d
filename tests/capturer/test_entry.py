import inspect

import pytest
import torch

from torchferry.capturer.entry import around_forward


class Model(torch.nn.Module):
    def forward(self, x, *, scale=2):
        return x * scale


def doubled(forward):
    return lambda *args, **kwargs: forward(*args, **kwargs) * 2


def test_forward_is_wrapped_and_as_before_afterwards():
    model, x = Model(), torch.ones(2)
    signature = inspect.signature(model.forward)
    with around_forward(model, doubled):
        assert model(x).tolist() == [4, 4]
        assert inspect.signature(model.forward) == signature
        with around_forward(model, doubled):
            assert model(x).tolist() == [8, 8]
    assert model(x).tolist() == [2, 2]
    assert "forward" not in vars(model)


def test_a_forward_of_the_instance_is_put_back_after_an_error():
    model = Model()
    own = lambda x: x  # noqa: E731  (an attribute, as a user sets it)
    model.forward = own
    with pytest.raises(ZeroDivisionError), around_forward(model, doubled):
        raise ZeroDivisionError
    assert model.forward is own
