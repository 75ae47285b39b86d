"""Layers that differ by their index, an attribute, a constant or a weight."""

from __future__ import annotations

import torch
from tests.support.identical_layers import Layer, Stack, case, stack
from torch import nn
from torch.nn import functional as F


@case(0)
def a_constant_by_index():
    return stack(lambda self, x: self.inner(x) / (self.index + 1))


@case(1)
def a_branch_of_one_index():
    def body(self, x):
        y = self.inner(x)
        return y.abs() if self.index == 1 else y

    return stack(body)


@case(2)
def period_two():
    def body(self, x):
        return self.inner(x * 2 if self.index % 2 else x - 1)

    return stack(body, count=4)


@case(0)
def the_last_call_is_another():
    return stack(lambda self, x: self.inner(x).clamp(-self.index, self.index + 0.5))


@case(1)
def one_call_more():
    def body(self, x):
        y = self.inner(x)
        return y + 1 if self.index == 2 else y

    return stack(body)


@case(1)
def one_call_less():
    def body(self, x):
        y = self.inner(x)
        return y if self.index == 1 else y * 2

    return stack(body)


@case(0)
def the_sign_of_zero():
    def body(self, x):
        zero = -0.0 if self.index == 1 else 0.0
        return 1 / torch.full_like(self.inner(x), zero if self.index < 2 else 2.0)

    return stack(body)


@case(0)
def an_integer_for_a_float():
    def body(self, x):
        return torch.full((4,), [1, 1.0, True][self.index]) * 2 + self.inner(x)

    return stack(body)


@case(1)
def another_epsilon():
    model = stack(Layer.forward)
    model.layers[1].norm.eps = 0.5
    return model


@case(1)
def another_activation():
    def body(self, x):
        return (torch.tanh if self.index == 2 else torch.sigmoid)(self.inner(x))

    return stack(body)


@case(1)
def another_axis():
    return stack(lambda self, x: self.inner(x).flip(int(self.index == 1)))


@case(0)
def values_in_a_list():
    return stack(lambda self, x: self.inner(x) * torch.tensor([self.index, 1, 2, 3]))


@case(0)
def a_slice_by_index():
    return stack(lambda self, x: F.pad(self.inner(x)[:, self.index :], (self.index, 0)))


@case(2)
def the_other_of_two_tensors():
    def body(self, x, y):
        return self.inner(x if self.index != 1 else y), x

    def run(layers, x):
        y = x * 2
        for layer in layers:
            x, y = layer(x, y)
        return x, y

    return stack(body, run)


@case(2)
def the_same_tensor_twice():
    def body(self, x, y):
        return self.inner(x) - y

    def run(layers, x):
        return [layers[0](x, x * 2), layers[1](x, x), layers[2](x, x + 3)]

    return stack(body, run)


@case(1)
def an_argument_is_None():
    def body(self, x, mask):
        return self.inner(x) if mask is None else self.inner(x) * mask

    def run(layers, x):
        for layer, mask in zip(layers, [x + 1, None, x * 2], strict=True):
            x = layer(x, mask)
        return x

    return stack(body, run)


@case(1)
def a_bias_is_absent():
    model = stack(Layer.forward)
    model.layers[1].a.bias = None
    model.layers[0].register_parameter("spare", None)
    return model


@case(2)
def another_width():
    return Stack([Layer(0), Layer(1, 6), Layer(2), Layer(3, 6)])


@case(1)
def another_dtype():
    def body(self, x):
        return self.inner(x.to(self.a.weight.dtype)).float()

    model = stack(body)
    model.layers[1].double()
    return model


@case(1)
def a_parameter_without_gradient():
    model = stack(Layer.forward)
    model.layers[1].a.weight.requires_grad_(False)
    return model


@case(1)
def a_weight_that_lies_otherwise():
    model = stack(Layer.forward)
    model.layers[1].a.weight = nn.Parameter(model.layers[1].a.weight.detach().t())
    return model


@case(1)
def another_size_goes_in():
    def run(layers, x):
        return [layers[0](x), layers[1](x[1:]), layers[2](x * 2)]

    return stack(Layer.forward, run)


@case(1)
def dropout_in_one_layer():
    def body(self, x):
        return F.dropout(self.inner(x), 1.0, self.index == 1)

    return stack(body)


@case(0)
def autocast_in_one_layer():
    def run(layers, x):
        for index, layer in enumerate(layers):
            with torch.autocast("cpu", torch.bfloat16, enabled=index == 1):
                x = layer(x).float()
        return x

    return stack(Layer.forward, run)


@case(1)
def another_default_dtype():
    def run(layers, x):
        for index, layer in enumerate(layers):
            torch.set_default_dtype(torch.float64 if index == 1 else torch.float32)
            x = layer(x).float()
        torch.set_default_dtype(torch.float32)
        return x

    return stack(
        lambda self, x: self.inner(x) * torch.ones(4, dtype=torch.get_default_dtype()), run
    )
