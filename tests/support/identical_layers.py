"""Models whose layers look alike and are not, or are and do what is hard to follow.

Each case is a function that returns a model, with the number of its layers that repeat another.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
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


# Alike ------------------------------------------------------------------------------------------


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


@case(2)
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


# By index, attribute, constant ------------------------------------------------------------------


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


# By what they do behind PyTorch's back ----------------------------------------------------------


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
                raise ValueError  # noqa: TRY301
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


# Values decide, or nothing can be noted ---------------------------------------------------------


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
        print(text)  # noqa: T201
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
