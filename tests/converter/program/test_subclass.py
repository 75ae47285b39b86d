"""Weights that are tensors made of tensors: which weights the file has, and the numbers."""

import onnx_ir as ir
import pytest
import torch
from torch import nn
from torch.nn import functional as F

import torchferry as tf
from torchferry.converter.program.subclass import (
    has_whole_weights,
    is_made_of_parts,
    split_weights,
)
from torchferry.converter.translate import prepared


class Packed(torch.Tensor):
    """A matrix of bytes with a scale for each row, which knows ``__torch_dispatch__`` only."""

    @staticmethod
    def __new__(cls, codes, scale):
        return torch.Tensor._make_wrapper_subclass(cls, codes.shape, dtype=torch.float32)

    def __init__(self, codes, scale):
        self.codes, self.scale = codes, scale

    def __tensor_flatten__(self):
        return ["codes", "scale"], None

    @classmethod
    def __tensor_unflatten__(cls, inner, meta, size, stride):
        return cls(inner["codes"], inner["scale"])

    def dequantize(self):
        return self.codes.to(torch.float32) * self.scale[:, None]

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        if func is torch.ops.aten.detach.default:
            return cls(*(getattr(args[0], name).detach() for name in ("codes", "scale")))

        def plain(value):
            return value.dequantize() if isinstance(value, Packed) else value

        return func(*map(plain, args), **(kwargs or {}))


class Read(Packed):
    """The same, whose parts ``__torch_function__`` reads, as torchao's are."""

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        if func is F.linear:
            x, weight, bias = (*args, None)[:3]
            return F.linear(x, weight.dequantize(), bias)
        with torch._C.DisableTorchFunctionSubclass():
            return func(*args, **(kwargs or {}))


class Nested(Read):
    """One whose codes are made of parts too."""

    def dequantize(self):
        return self.codes.dequantize() * self.scale[:, None]


def codes(rows, columns):
    return torch.randint(-127, 127, (rows, columns), dtype=torch.int8)


def packed(kind, rows=3, columns=4):
    torch.manual_seed(0)
    scale = torch.rand(rows) * 0.01
    if kind is Nested:
        return Nested(Read(codes(rows, columns), scale), torch.rand(rows))
    return kind(codes(rows, columns), scale)


class Model(nn.Module):
    def __init__(self, kind):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(4, 3), nn.ReLU())
        self.body[0].weight = nn.Parameter(packed(kind), requires_grad=False)

    def forward(self, x):
        return self.body(x)


NAMES = {"body.0.weight.codes", "body.0.weight.scale", "body.0.bias"}
FEED, LATER = torch.randn(2, 4), (torch.randn(1, 4), torch.randn(7, 4))


def names(program):
    return {v.name.removesuffix(".T") for v in program.model.graph.initializers.values()}


@pytest.mark.parametrize("kind", [Packed, Read])
def test_each_part_is_a_weight_of_the_file(kind):
    model = Model(kind).eval()
    program = tf.to_onnx(model, (FEED,), dynamic_shapes=({0: "batch"},))
    assert names(program) >= NAMES
    for x in LATER:
        torch.testing.assert_close(program(x), model(x))
    assert isinstance(model.body[0].weight, kind), "the model is left as it was"


def test_parts_may_have_parts():
    model = Model(Nested).eval()
    program = tf.to_onnx(model, (FEED,), dynamic_shapes=({0: "batch"},))
    assert {"body.0.weight.codes.codes", "body.0.weight.codes.scale"} <= names(program)
    for x in LATER:
        torch.testing.assert_close(program(x), model(x))


@pytest.mark.parametrize("kind", [Packed, Read, Nested])
def test_the_whole_walk(kind, tmp_path):
    model = Model(kind).eval()
    with tf.observe(model) as seen:
        model(FEED), model(LATER[1])
    program = tf.export(model, seen)
    assert program.report.ok
    program.save(tmp_path / "model.onnx")
    for x in LATER:
        torch.testing.assert_close(tf.load(tmp_path)(x), model(x))
    captured = tf.capture(model, seen)
    torch.testing.assert_close(captured.program.module()(x=LATER[1]), model(LATER[1]))


def exported(model):
    return torch.export.export(model, (FEED,), strict=False)


def test_a_program_of_plain_weights_is_left_as_it_is():
    program = exported(nn.Linear(4, 3))
    assert not has_whole_weights(program)
    assert split_weights(program) is program


def test_the_program_of_the_user_is_left_as_it_is():
    program = exported(Model(Read).eval())
    assert has_whole_weights(program)
    split = split_weights(program)
    assert not has_whole_weights(split)
    assert is_made_of_parts(program.state_dict["body.0.weight"])
    torch.testing.assert_close(split.module()(FEED), program.module()(FEED))


def test_a_weight_that_an_operator_takes_whole_is_taken_apart_by_torch():
    program = exported(Model(Packed).eval())
    assert has_whole_weights(split_weights(program))
    assert {*prepared(program).state_dict} == NAMES


class Twice(nn.Module):
    """A weight that is read in two places, and a buffer."""

    def __init__(self, kind):
        super().__init__()
        self.weight = nn.Parameter(packed(kind), requires_grad=False)
        self.register_buffer("held", packed(kind))

    def forward(self, input):  # noqa: A002  (a name that a copy of the graph changes)
        return (
            F.linear(input, self.weight)
            + F.linear(input + 1, self.weight)
            + F.linear(input, self.held)
        )


@pytest.mark.parametrize("kind", [Packed, Read])
def test_read_twice_and_held_as_a_buffer(kind):
    model = Twice(kind).eval()
    program = tf.to_onnx(model, (FEED,), dynamic_shapes=({0: "batch"},))
    assert [v.name for v in program.model.graph.inputs] == ["input"]
    for x in LATER:
        torch.testing.assert_close(program(x), model(x))


@pytest.mark.parametrize("kind", [Packed, Read])
def test_comparing_names_the_part_that_differs(kind):
    model = Model(kind).eval()
    program = tf.to_onnx(model, (FEED,), dynamic_shapes=({0: "batch"},))
    assert "equals" in str(tf.compare(model, program, (LATER[1],), against="eager").verdict)
    weights = program.model.graph.initializers
    (scale,) = (value for name, value in weights.items() if name.endswith(".scale"))
    other = scale.const_value.numpy().copy()
    other[1] *= 1.5
    scale.const_value = ir.tensor(other, name=scale.name)
    found = tf.compare(model, program.model, (LATER[1],), against="eager")
    assert not found.ok
    assert "body.0.weight.scale" in str(found)
