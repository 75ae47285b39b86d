"""Models whose layers look alike and are not, or are and do what is hard to follow.

Each case is a function that returns a model, with the number of its layers that repeat another.
"""

from __future__ import annotations

import functools
import types
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import nn
from torch.nn import functional as F

Case = tuple[Callable[[], nn.Module], int]
CASES: dict[str, Case] = {}
BOARD: dict[str, Any] = {}  # what layers share behind PyTorch's back


def case(repeated: int) -> Callable[[Callable[[], nn.Module]], Callable[[], nn.Module]]:
    """Enter a model, and how many of its layers repeat another."""

    def enter(make: Callable[[], nn.Module]) -> Callable[[], nn.Module]:
        CASES[make.__name__.replace("_", " ")] = (make, repeated)
        return make

    return enter


class Layer(nn.Module):
    """What most cases change something of."""

    def __init__(self, index: int, width: int = 4) -> None:
        super().__init__()
        self.index = index
        self.a, self.b, self.norm = nn.Linear(4, width), nn.Linear(width, 4), nn.LayerNorm(4)

    def inner(self, x):
        return self.norm(x + self.b(F.relu(self.a(x))))

    def forward(self, x):
        return self.inner(x)


class Stack(nn.Module):
    def __init__(self, layers, run=None):
        super().__init__()
        self.layers = nn.ModuleList(layers)
        self.run = run

    def forward(self, x):
        BOARD.clear()
        if self.run is not None:
            return self.run(self.layers, x)
        for layer in self.layers:
            x = layer(x)
        return x


def stack(body: Callable[..., Any], run: Any = None, count: int = 3, **more: Any) -> nn.Module:
    """Layers whose forward is ``body(self, x)``, run one after the other if ``run`` does not."""
    cls = types.new_class("Case", (Layer,), {}, lambda space: space.update(forward=body, **more))
    return Stack([cls(index) for index in range(count)], run)


@case(2)
def alike():
    return stack(Layer.forward)


@case(2)
def sequential():
    return nn.Sequential(*(Layer(index) for index in range(3)))


@case(2)
def training_mode_with_dropout_of_zero():
    return stack(lambda self, x: F.dropout(self.inner(x), 0.0, True))


@case(3)
def two_stacks():
    class Two(nn.Module):
        def __init__(self):
            super().__init__()
            self.left = nn.ModuleList([Layer(index) for index in range(2)])
            self.right = nn.ModuleDict({name: Layer(5) for name in "ab"})

        def forward(self, x):
            for layer in self.left:
                x = layer(x)
            return x + self.right["b"](self.right["a"](x))

    return Two()


@case(2)
def results_in_a_list_that_is_an_argument():
    def run(layers, x):
        kept = []
        for layer in layers:
            x = layer(x, kept)
        return x + kept[0] * kept[-1], kept[1]

    def body(self, x, kept):
        kept.append(F.relu(x) + 1)
        return self.inner(x)

    return stack(body, run)


@case(0)  # what it keeps might come out in another place: a whole trace
def results_in_a_global_dictionary():
    def body(self, x):
        BOARD[self.index] = x = self.inner(x)
        return x

    def run(layers, x):
        for layer in layers:
            x = layer(x)
        return sum(BOARD.values())

    return stack(body, run)


@case(2)
def results_in_attributes():
    def body(self, x):
        self.last = [self.inner(x)]
        return self.last[0] * 2

    def run(layers, x):
        for layer in layers:
            x = layer(x)
        return x + sum(layer.last[0] for layer in layers)

    return stack(body, run)


@case(2)
def a_result_that_is_an_object():
    class Pair(NamedTuple):
        left: Any
        right: Any

    @dataclass
    class Box:
        pair: Pair
        note: str

    def body(self, x):
        return Box(Pair(self.inner(x), {"x": x * 2}), "kept")

    def run(layers, x):
        total = 0
        for layer in layers:
            box = layer(x)
            x = box.pair.left
            total = total + box.pair.right["x"]
        return x, total

    return stack(body, run)


@case(2)
def a_generator_of_results():
    def body(self, x):
        return (part * 2 for part in (self.inner(x), x))

    def run(layers, x):
        for layer in layers:
            x, _ = layer(x)
        return x

    return stack(body, run)


@case(2)
def its_input_is_returned():
    def body(self, x):
        return x, self.inner(x), x

    def run(layers, x):
        for layer in layers:
            same, y, again = layer(x)
            assert same is x
            assert again is x
            x = y
        return x

    return stack(body, run)


@case(2)
def a_view_of_its_input():
    def run(layers, x):
        x = x + 1
        for layer in layers:
            part, y = layer(x)
            part += 1  # x has it too
            x = x + y
        return x

    return stack(lambda self, x: (x[:, :2], self.inner(x)), run)


@case(2)
def in_place_within():
    def body(self, x):
        y = self.inner(x)
        y += x
        y[:, 0] = 2
        y.mul_(0.5)
        return y

    return stack(body)


@case(2)
def writes_to_what_it_takes():
    def body(self, x):
        x += self.inner(x)
        return x

    return stack(body, lambda layers, x: functools.reduce(lambda y, one: one(y), layers, x + 1))


@case(2)
def layers_that_write_to_each_other():
    def body(self, x, board):
        board[:, self.a.out_features - 4] += self.inner(x).sum(-1)
        return x + board

    def run(layers, x):
        board = torch.zeros_like(x)
        for layer in layers:
            x = layer(x, board)
        return x + board

    return stack(body, run)


@case(2)
def called_in_another_order():
    return stack(Layer.forward, lambda layers, x: layers[1](layers[0](layers[2](x))))


@case(2)
def called_twice():
    return stack(Layer.forward, lambda layers, x: [one(one(x) * 2) for one in layers])


@case(2)
def called_on_lines_of_their_own():
    def run(layers, x):
        x = layers[0](x)
        x = layers[1](x) * 3
        return layers[2](x) + x

    return stack(Layer.forward, run)


@case(2)
def sizes_in_results():
    def body(self, x):
        return self.inner(x), x.shape[0] * 2, x.shape

    def run(layers, x):
        for layer in layers:
            x, number, shape = layer(x)
            x = x / number + shape[-1]
        return x

    return stack(body, run)


@case(2)
def a_tuple_is_unpacked():
    def body(self, x):
        first, *others = self.inner(x).unbind(1)
        return torch.stack([first * 2, *others], 1)

    return stack(body)


@case(2)
def parts_of_results():
    def body(self, x):
        values, indices = self.inner(x).topk(2)
        left, right = x.chunk(2, -1)
        return torch.cat([values + left, right * indices], -1)

    return stack(body)


@case(2)
def constants_within():
    def body(self, x):
        return self.inner(x) * torch.tensor([1.0, 2.0, 3.0, 4.0]) + torch.arange(4)

    return stack(body)


@case(2)
def a_weight_of_another_value():
    model = stack(Layer.forward)
    with torch.no_grad():
        model.layers[1].norm.weight[2] = 7.0
    return model


@case(2)
def shared_weights():
    model = stack(Layer.forward)
    model.layers[2].a.weight = model.layers[0].a.weight
    return model


@case(2)
def a_shared_module():
    model = stack(Layer.forward)
    model.layers[2].a = model.layers[0].a
    return model


@case(2)
def identity_of_tensors():
    def body(self, x):
        seen = {id(x): 0}
        y = self.inner(x)
        seen[id(y)] = 3
        return y * seen[id(y)] + x * seen[id(x)] + (y is y)

    return stack(body)


@case(2)
def a_custom_operator():
    return stack(lambda self, x: torch.ops.torchferry_tests.double(self.inner(x)))


@case(2)
def a_view_that_is_transposed():
    def body(self, x):
        return self.inner(x.t().contiguous().t()).t()

    return stack(body, lambda layers, x: [one(x) for one in layers])


@case(2)
def einsum_and_keywords():
    def body(self, x, *, scale=1.0, mask=None):
        y = torch.einsum("bi,ij->bj", self.inner(x), self.a.weight)
        return torch.where(mask, y, torch.zeros((), dtype=y.dtype)) * scale

    def run(layers, x):
        mask = x > 0
        for layer in layers:
            x = layer(x, mask=mask, scale=0.5)
        return x

    return stack(body, run)


@case(2)
def lists_of_tensors_go_in_and_out():
    def body(self, parts):
        return [self.inner(part) + parts[0] for part in parts]

    def run(layers, x):
        parts = [x, x * 2]
        for layer in layers:
            parts = layer(parts)
        return parts

    return stack(body, run)
