"""Layers that ask for values, or do what cannot be compared."""

from __future__ import annotations

from typing import Any

import torch
from tests.support.identical_layers import BOARD, Layer, Stack, case, stack


class WithBuffer(Layer):
    """Has a buffer of its own."""

    def __init__(self, index: int, value: Any) -> None:
        super().__init__(index)
        self.register_buffer("kept", torch.as_tensor(value))


@case(0)
def a_buffer_decides():
    class Decided(WithBuffer):
        def forward(self, x):
            return self.inner(x) * (2 if self.kept > 1 else 3)

    return Stack([Decided(index, index) for index in range(3)])


@case(0)
def a_buffer_is_a_number():
    class Number(WithBuffer):
        def forward(self, x):
            return self.inner(x) * self.kept.item()

    return Stack([Number(index, index + 1) for index in range(3)])


@case(0)
def a_buffer_is_a_size():
    class Sized(WithBuffer):
        def forward(self, x):
            return self.inner(x)[:, : int(self.kept)].sum(-1, keepdim=True) + x

    return Stack([Sized(index, index + 1) for index in range(3)])


@case(2)
def buffers_of_other_values():
    class Scaled(WithBuffer):
        def forward(self, x):
            return self.inner(x) * self.kept

    return Stack([Scaled(index, [1.0, 2.0, 3.0, index]) for index in range(3)])


@case(0)
def a_table_of_integers_by_layer():
    class Indexed(WithBuffer):
        def forward(self, x):
            return self.inner(x)[:, self.kept]

    return Stack([Indexed(index, [0, 1, 2, index]) for index in range(3)])


@case(0)
def split_by_a_tensor():
    class Split(WithBuffer):
        def forward(self, x):
            left, right = self.inner(x).tensor_split(self.kept, dim=1)
            return torch.cat([right, left * 2], 1)

    return Stack([Split(index, [index + 1]) for index in range(3)])


@case(0)
def a_tensor_of_the_layer_that_is_no_buffer():
    class Plain(Layer):
        def __init__(self, index):
            super().__init__(index)
            self.plain = torch.full((4,), float(index))

        def forward(self, x):
            return self.inner(x) + self.plain

    return Stack([Plain(index) for index in range(3)])


@case(0)
def a_list_of_tensors():
    table = [torch.full((4,), float(index)) for index in range(3)]
    return stack(lambda self, x: self.inner(x) + table[self.index])


@case(2)
def a_function_of_autograd():
    class Twice(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, grad):
            return grad * 2

    return stack(lambda self, x: Twice.apply(self.inner(x)))


@case(0)
def torch_functions_are_disabled():
    def body(self, x):
        y = self.inner(x)
        with torch._C.DisableTorchFunctionSubclass():
            return y + self.index

    return stack(body)


@case(0)
def a_grad_mode_of_its_own():
    def body(self, x):
        with torch.enable_grad() if self.index == 1 else torch.no_grad():
            return self.inner(x)

    return stack(body)


@case(0)
def storage_of_a_tensor():
    def body(self, x):
        y = self.inner(x)
        y.data = y.data * 2 if self.index == 1 else y.data
        return y

    return stack(body)


@case(0)
def a_shape_that_changes_in_place():
    def body(self, x):
        y = self.inner(x).clone()
        y.t_()
        y.unsqueeze_(0)
        return y[0].t()

    return stack(body)


@case(0)
def a_size_that_depends_on_values():
    def body(self, x):
        y = self.inner(x)
        return y + y[y > 0].sum()

    return stack(body)


@case(2)
def printed_shapes():
    def body(self, x):
        y = self.inner(x)
        text = f"{y.shape[1:]} {y.dtype} {y.device} {y.dim()} {y.is_contiguous()} {y.stride()}"
        print(text)  # noqa: T201  # that it prints is the case
        return y

    return stack(body)


@case(0)
def printed_tensors():
    def body(self, x):
        y = self.inner(x)
        BOARD["text"] = f"{y}"
        return y

    return stack(body)


@case(2)
def checks_of_sizes():
    def body(self, x):
        y = self.inner(x)
        if y.shape[0] > 64:
            raise ValueError(f"{y.shape[0]} rows are too many")
        assert y.dtype is torch.float32
        return y

    return stack(body)


@case(1)
def a_branch_on_a_size_in_one():
    def body(self, x):
        y = self.inner(x)
        if self.index == 1 and y.shape[0] > 1:
            return y * y.shape[0]
        return y

    return stack(body)


@case(1)
def a_branch_on_strides():
    def run(layers, x):
        y = torch.cat([x, x], 1)
        return [layers[0](x), layers[1](y[:, :4]), layers[2](x + 1)]

    return stack(lambda self, x: self.inner(x) + int(x.is_contiguous()), run)
