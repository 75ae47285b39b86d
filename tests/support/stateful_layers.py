"""Layers that differ by what they do behind PyTorch's back."""

from __future__ import annotations

import contextlib
import itertools
import types

from tests.support.identical_layers import BOARD, Layer, case, stack
from torch import nn
from torch.nn import functional as F


@case(0)
def a_global_counter():
    def body(self, x):
        BOARD["count"] = BOARD.get("count", 0) + 1
        return self.inner(x) * BOARD["count"]

    return stack(body)


@case(2)
def a_global_counter_that_nothing_reads_but_the_end():
    def body(self, x):
        BOARD["count"] = BOARD.get("count", 0) + 1
        return self.inner(x)

    def run(layers, x):
        for layer in layers:
            x = layer(x)
        return x * BOARD["count"]

    return stack(body, run)


@case(0)
def a_closure_that_counts():
    def run(layers, x):
        numbers = itertools.count(1)
        for layer in layers:
            x = layer(x, lambda y: y * next(numbers))
        return x

    return stack(lambda self, x, change: change(self.inner(x)), run)


@case(1)
def a_counter_and_a_mismatch():
    """Who ran a layer again after a mismatch would count twice."""

    def body(self, x):
        BOARD["count"] = BOARD.get("count", 0) + 1
        y = self.inner(x)
        if BOARD["count"] == 2:
            y = y.abs()
        return y if BOARD["count"] < 4 else y * 0

    return stack(body)


@case(1)
def what_an_earlier_layer_left_in_a_global():
    def body(self, x):
        y = self.inner(x)
        if "mask" not in BOARD:
            BOARD["mask"] = F.relu(x) + 1
        return y * BOARD["mask"]

    return stack(body)


@case(2)
def the_input_of_all_in_a_global():
    def run(layers, x):
        BOARD["x"] = x * 2
        for layer in layers:
            x = layer(x)
        return x

    return stack(lambda self, x: self.inner(x) + BOARD["x"], run)


@case(1)
def each_reads_what_the_last_one_left():
    def body(self, x):
        y = self.inner(x) + BOARD.get("last", x)
        BOARD["last"] = y * 2
        return y

    return stack(body)


@case(1)
def a_hook_on_a_part_of_one():
    model = stack(Layer.forward)
    model.layers[1].b.register_forward_hook(lambda _m, _i, result: result * 3)
    return model


@case(2)
def a_hook_on_one():
    model = stack(Layer.forward)
    model.layers[1].register_forward_hook(lambda _m, _i, result: result * 3)
    model.layers[2].register_forward_pre_hook(lambda _m, inputs: (inputs[0] - 1,))
    return model


@case(1)
def a_forward_of_its_own():
    model = stack(Layer.forward)
    layer = model.layers[1]
    layer.forward = lambda x: layer.inner(x) - 5
    return model


@case(1)
def a_part_is_replaced():
    model = stack(Layer.forward)
    model.layers[1].a = nn.Sequential(nn.Linear(4, 4), nn.Tanh())
    model.layers[1].a[0].weight = model.layers[0].a.weight
    return model


@case(0)
def attributes_count():
    def body(self, x):
        shared = BOARD.setdefault("shared", types.SimpleNamespace(steps=0))
        shared.steps += 1
        return self.inner(x) - shared.steps

    return stack(body)


@case(1)
def an_error_is_caught():
    def body(self, x):
        y = self.inner(x)
        try:
            if self.index == 1:
                raise ValueError  # noqa: TRY301  # that it is caught is the case
            return y * 2
        except ValueError:
            return y * 3

    return stack(body)


@case(0)
def an_error_from_outside_is_caught():
    def run(layers, x):
        for layer in layers:
            with contextlib.suppress(ValueError):
                x = layer(x)
        return x

    def body(self, x):
        y = self.inner(x)
        if self.index == 1:
            raise ValueError
        return y

    return stack(body, run)


@case(2)
def what_the_layer_before_is_called():
    def body(self, x, names):
        names.append(f"layer {self.index} of {tuple(x.shape[1:])}")
        return self.inner(x)

    def run(layers, x):
        names = []
        for layer in layers:
            x = layer(x, names)
        return x * len("".join(names))

    return stack(body, run)
