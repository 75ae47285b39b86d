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


class Decorated(torch.nn.Module):
    """Its function states its own signature, as decorators of some libraries do."""

    def forward(self, *args, **kwargs):
        return args[0] * kwargs.get("scale", 2)

    forward.__signature__ = inspect.signature(Model.forward)


def test_a_signature_that_a_decorator_stated_has_no_self():
    model = Decorated()
    signature = inspect.signature(model.forward)
    assert list(signature.parameters) == ["x", "scale"]
    with around_forward(model, doubled):
        assert inspect.signature(model.forward) == signature
        assert model(torch.ones(1), scale=3).tolist() == [6]
