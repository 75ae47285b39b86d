from collections import OrderedDict
from dataclasses import dataclass

import onnx
import onnx_ir as ir
import pytest
import torch
from torch.utils import _pytree as pytree

import torchferry
from torchferry.converter import convert
from torchferry.converter.signature import read_signature
from torchferry.errors import ConversionError, UsageError
from torchferry.graph.runtime import EMPTY_TENSORS
from torchferry.values import make_dynamic_cache, make_encoder_decoder_cache, max_diff
from torchferry.values.clone import clone
from torchferry.values.flatten import register_pytrees
from torchferry.values.signature import SIGNATURE_KEY, Signature
from versions import can


class Returns(torch.nn.Module):
    """Returns what a function makes of its inputs."""

    def __init__(self, body):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.tensor([1.0, 2.0, 3.0]))
        self.register_buffer("offset", torch.tensor([5.0]))
        self.linear = torch.nn.Linear(3, 3)
        self.body = body

    def forward(self, x):
        return self.body(self, x)


def round_trip(model, args, session, kwargs=None):
    """The converted model, after checking that it returns what the module does."""
    kwargs = kwargs or {}
    program = torch.export.export(model.eval(), args, kwargs)
    converted = convert(program)
    onnx.checker.check_model(ir.to_proto(converted), full_check=True)
    names = [v.name for v in [*converted.graph.inputs, *converted.graph.outputs]]
    assert len(set(names)) == len(names)
    run = session(converted)
    expected, got = model(*clone(args), **clone(kwargs)), run(*args, **kwargs)
    assert max_diff(expected, got).abs < 1e-5
    assert type(got) is type(expected)
    return converted


def outputs(model, *args):
    signature = read_signature(torch.export.export(model, args))
    return list(signature.output_names)


make_dynamic_cache([])
register_pytrees()  # the caches, now that transformers is imported; capture does it

X = torch.arange(6.0).reshape(2, 3)

NESTINGS = {
    "one": (lambda m, x: x + 1, ["output"]),
    "tuple": (lambda m, x: (x + 1, x * 2), ["output_0", "output_1"]),
    "list in tuple": (lambda m, x: ([x + 1, x], x - 1), ["output_0.0", "output_0.1", "output_1"]),
    "dict": (lambda m, x: {"logits": x + 1, "z": {"a": x * 2}}, ["logits", "z.a"]),
    "other keys": (lambda m, x: {3: x + 1, "b c": x}, ["output_3", "b c"]),
    "ordered": (lambda m, x: OrderedDict(b=x + 1, a=x * 2), ["b", "a"]),
    "name of an input": (lambda m, x: {"x": x, "output_x": x}, ["output_x", "output_output_x"]),
    "same path": (lambda m, x: {"a.b": x + 1, "a": {"b": x * 2}}, ["a.b", "output_a.b"]),
    "names inside": (
        lambda m, x: {"add": m.linear(x + 1), "linear": x * 2, "linear.weight": x - 1},
        ["add", "linear", "linear.weight"],
    ),
    "passed through": (lambda m, x: (x, x), ["output_0", "output_1"]),
    "twice": (lambda m, x: [(x * 2,) * 2][0], ["output_0", "output_1"]),
    "weights": (lambda m, x: (m.weight, m.offset, x + 1), ["output_0", "output_1", "output_2"]),
    "constants": (
        lambda m, x: (None, 3, x + 1, "text", 2.5, True, [None], x),
        ["output_2", "output_7"],
    ),
    "scalar": (lambda m, x: x.sum(), ["output"]),
    "cache": (
        lambda m, x: (x, make_dynamic_cache([(x[None, None], x[None, None] * 2)])),
        ["output_0", "present.0.key", "present.0.value"],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", NESTINGS)
def test_outputs_are_named_and_nested_as_the_model_returns_them(name, session):
    body, names = NESTINGS[name]
    model = Returns(body)
    converted = round_trip(model, (X,), session)
    assert [v.name for v in converted.graph.outputs] == names == outputs(model, X)
    assert Signature.from_json(converted.metadata_props[SIGNATURE_KEY]).output_names == tuple(
        names
    )


class Shapes(torch.nn.Module):
    def forward(self, x):
        n = x.shape[0]
        return n, n * 2, n / 2, n > 2, x.sum(), x


def test_sizes_are_returned_as_python_numbers(session):
    program = torch.export.export(
        Shapes(), (X,), dynamic_shapes={"x": {0: torch.export.Dim.DYNAMIC}}
    )
    run = session(convert(program))
    got = run(torch.ones(3, 3))
    assert got[:4] == (3, 6, 1.5, True)
    assert [type(v) for v in got[:4]] == [int, int, float, bool]
    assert run.signature.numbers == ("output_0", "output_1", "output_2", "output_3")


def test_an_input_may_have_the_name_of_a_weight(session):
    class Named(torch.nn.Linear):
        def forward(self, weight):
            return super().forward(weight)

    converted = round_trip(Named(3, 2), (X,), session)
    assert [v.name for v in converted.graph.inputs] == ["weight"]


class Takes(torch.nn.Module):
    def forward(self, first, *rest, options, past_key_values, flag=True):
        cached = past_key_values.layers[0].keys
        total = first + rest[0] + options["a"][0] + options["b"]["c d"] + cached.sum()
        return total * 2 if flag else total


def test_inputs_are_named_by_where_they_stand(session):
    one = torch.ones(2)
    cache = make_dynamic_cache([(torch.ones(1, 1, 2, 4), torch.ones(1, 1, 2, 4))])
    kwargs = {
        "flag": False,
        "options": {"a": [one], "b": {"c d": one}},
        "past_key_values": cache,
    }
    converted = round_trip(Takes(), (one, one), session, kwargs)
    assert [v.name for v in converted.graph.inputs] == [
        "first", "rest_0", "options.a.0", "options.b.c d", "past_key_values.0.key",
        "past_key_values.0.value",
    ]  # fmt: skip
    signature = Signature.from_json(converted.metadata_props[SIGNATURE_KEY])
    assert signature.constants == {"flag": False}
    assert signature.inputs[1].path == (1,)


def test_a_cache_given_by_position_keeps_its_names(session):
    class Positional(torch.nn.Module):
        def forward(self, x, past_key_values):
            return x + past_key_values.layers[0].keys.sum()

    cache = make_dynamic_cache([(torch.ones(1, 1, 2, 4), torch.ones(1, 1, 2, 4))])
    converted = round_trip(Positional(), (X, cache), session)
    names = [v.name for v in converted.graph.inputs]
    assert names == ["x", "past_key_values.0.key", "past_key_values.0.value"]


def test_the_two_parts_of_an_encoder_decoder_cache():
    def body(_, x):
        y = x[None, None]
        return make_encoder_decoder_cache([(y, y * 2)], [(y + 1, y + 2)])

    assert outputs(Returns(body), X) == [
        "present.0.decoder.key", "present.0.decoder.value",
        "present.0.encoder.key", "present.0.encoder.value",
    ]  # fmt: skip


def test_two_inputs_of_one_name_are_refused():
    class Clash(torch.nn.Module):
        def forward(self, a):
            return a["b.c"] + a["b"]["c"]

    program = torch.export.export(Clash(), ({"b.c": X, "b": {"c": X}},))
    with pytest.raises(ConversionError, match=r"two inputs would both be called a.b.c"):
        read_signature(program)


class Opaque:
    def __init__(self, value):
        self.value = value


@dataclass
class Reversed:
    first: object
    second: object


pytree.register_pytree_node(
    Opaque,
    lambda o: ([o.value], None),
    lambda children, _: Opaque(*children),
    serialized_type_name="test.Opaque",
)
pytree.register_pytree_node(
    Reversed,
    lambda o: ([o.second, o.first], None),
    lambda children, _: Reversed(*reversed(list(children))),
    serialized_type_name="test.Reversed",
)


@pytest.mark.parametrize("body", [lambda m, x: Opaque(x + 1), lambda m, x: Reversed(x + 1, x * 2)])
def test_outputs_in_a_class_that_cannot_be_rebuilt_are_refused(body):
    program = torch.export.export(Returns(body), (X,))
    with pytest.raises(ConversionError, match=r"(Opaque|Reversed)\(.*kinds.register"):
        read_signature(program)


ROWS = (2, 5, 0) if can(EMPTY_TENSORS) else (2, 5)


def test_complex_numbers_come_back_as_they_went_in(session):
    class Turned(torch.nn.Module):
        def forward(self, z, x):
            return {"turned": z * 1j, "parts": (torch.complex(x, x), z.abs())}

    sets = [(torch.randn(n, 3, dtype=torch.complex64), torch.randn(n)) for n in ROWS]
    shapes = ({0: torch.export.Dim.DYNAMIC},) * 2
    program = torch.export.export(Turned(), sets[0], dynamic_shapes=shapes)
    run = session(convert(program))
    for inputs in sets:
        torch.testing.assert_close(run(*inputs), Turned()(*inputs))


def test_a_none_that_was_given_is_not_the_default():
    class Model(torch.nn.Module):
        def forward(self, x, flag=False):
            return x * 2 if flag is None else x - 1

    program = torchferry.to_onnx(Model(), (torch.ones(2),), {"flag": None})
    assert program(torch.ones(2), flag=None).tolist() == [2, 2]
    for given in ({"flag": False}, {}):
        with pytest.raises(UsageError, match=r"argument flag .* was exported as None"):
            program(torch.ones(2), **given)


class Scales(torch.nn.Module):
    def forward(self, x, a=2.0, y=None):
        return x * a if y is None else x * a + y


def test_a_default_that_no_call_gave_may_be_given_by_position():
    x = torch.ones(3, 4)
    program = torchferry.to_onnx(Scales(), (x,), dynamic_shapes=({0: "n"},))
    assert program(x, 2.0).tolist() == program(x, 2.0, None).tolist() == (x * 2).tolist()
    with pytest.raises(UsageError, match=r"exported as 2\.0"):
        program(x, 3.0)
