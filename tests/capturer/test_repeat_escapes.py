"""What a layer's Python may know of a tensor that a stand-in does not: such layers are traced."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode, wrap_torch_function

from torchferry.capturer import capture
from torchferry.observer import Observation


class Layer(nn.Module):
    """Enough modules to be worth comparing."""

    def __init__(self, index: int) -> None:
        super().__init__()
        self.index = index
        self.first, self.second, self.norm = nn.Linear(4, 4), nn.Linear(4, 4), nn.LayerNorm(4)
        self.register_buffer("known", torch.tensor([1.0, index / 5 + 0.1]))

    def inner(self, x: torch.Tensor) -> torch.Tensor:
        return self.norm(x + self.second(F.relu(self.first(x))))


class Pair(tuple):
    scale: float


class Times(TorchFunctionMode):
    def __init__(self, factor: int) -> None:
        super().__init__()
        self.factor = factor

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        return result * self.factor if getattr(func, "__name__", "") == "linear" else result


FACTOR = {"now": 0}
KNOWN: dict[str, Any] = {}


@wrap_torch_function(lambda x: (x,))
def scaled(x: torch.Tensor) -> torch.Tensor:
    return x * FACTOR["now"]


def of_data(layer: Layer, x: torch.Tensor) -> torch.Tensor:
    return F.leaky_relu(layer.inner(x), x.abs().mean())


def of_an_element(layer: Layer, x: torch.Tensor) -> torch.Tensor:
    return F.leaky_relu(layer.inner(x), layer.known[1])


def of_one_of_several(layer: Layer, x: torch.Tensor) -> torch.Tensor:
    return F.leaky_relu(layer.inner(x), layer.known.unbind()[1])


def of_its_base(layer: Layer, x: torch.Tensor) -> torch.Tensor:
    seen = x if layer.index != 1 else torch.cat([x, x])[: x.shape[0]]
    return inner_of_base(layer, seen)


def inner_of_base(layer: Layer, x: torch.Tensor) -> torch.Tensor:
    return layer.inner(x) * (2 if x._base is None else 3)


def kept(layer: Layer, x: torch.Tensor) -> torch.Tensor:
    KNOWN["last"] = result = layer.inner(x)
    return result


def marked(layer: Layer, x: torch.Tensor) -> torch.Tensor:
    result = layer.inner(x)
    result.scale = layer.index + 2
    return result


def watched(layer: Layer, x: torch.Tensor) -> torch.Tensor:
    result = layer.inner(x)
    KNOWN["watched"] = weakref.ref(result)
    return result


def wrapped(layer: Layer, x: torch.Tensor) -> torch.Tensor:
    FACTOR["now"] = layer.index + 1
    return scaled(layer.inner(x))


def in_a_pair(layer: Layer, x: torch.Tensor) -> Any:
    result = Pair((layer.inner(x), x))
    result.scale = layer.index + 2
    return result


def plain(layer: Layer, x: torch.Tensor) -> torch.Tensor:
    return layer.inner(x)


def after(index: int, result: Any) -> torch.Tensor:
    """What code outside of the layers asks of their results."""
    if isinstance(result, tuple):
        return result[0] * getattr(result, "scale", 1)
    same = result is KNOWN.get("last") or KNOWN.get("watched", lambda: None)() is result
    return result * getattr(result, "scale", 1) * (2 if same else 1)


def every_other(layer: Layer, x: torch.Tensor) -> torch.Tensor:
    """The first call returns what it is given; the second kind of layer begins as the first."""
    result = layer.inner(x.to(torch.float32)) + x
    return result * 2 if layer.index % 2 else result.sin()


class Model(nn.Module):
    def __init__(self, function: Callable[..., Any], modes: bool = False, count: int = 3) -> None:
        super().__init__()
        self.layers = nn.ModuleList([Calling(index, function) for index in range(count)])
        self.modes = modes

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for index, layer in enumerate(self.layers):
            if self.modes:
                with Times(index + 1):
                    result = layer(x)
            else:
                result = layer(x)
            x = after(index, result)
        return x


class Calling(Layer):
    def __init__(self, index: int, function: Callable[..., Any]) -> None:
        super().__init__(index)
        self.function = function

    def forward(self, x: torch.Tensor) -> Any:
        return self.function(self, x)


_FUNCTIONS = (of_data, of_an_element, of_one_of_several, of_its_base, kept, marked, watched,
              wrapped, in_a_pair)  # fmt: skip
MODELS = {one.__name__: Model(one) for one in _FUNCTIONS}
MODELS["under modes"] = Model(plain, modes=True)
MODELS["every other"] = Model(every_other, count=4)


@pytest.mark.sample(3)
@pytest.mark.parametrize("name", MODELS)
def test_numbers_are_those_of_the_model(name: str) -> None:
    KNOWN.clear()
    model = MODELS[name].eval()
    seen = Observation.from_inputs(model, [(torch.randn(n, 4),) for n in (3, 5)])
    captured = capture(model, seen)
    for rows in (1, 7):
        x = torch.randn(rows, 4)
        with torch.no_grad():
            torch.testing.assert_close(captured(x), model(x))


@pytest.mark.parametrize(
    ("model", "words"),
    [
        (Model(plain), "2 of 3 layers repeated"),
        (Model(every_other, count=4), "2 of 4 layers repeated"),
    ],
)
def test_a_layer_that_asks_for_nothing_is_repeated(model: Model, words: str) -> None:
    KNOWN.clear()
    seen = Observation.from_inputs(model.eval(), [(torch.randn(n, 4),) for n in (3, 5)])
    assert str(capture(model, seen).repeated) == words
