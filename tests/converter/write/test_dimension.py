import re

import onnx_ir as ir
import pytest
import torch

from torchferry.converter import convert, name_dimensions
from torchferry.dims import Dim
from torchferry.errors import ConversionError
from torchferry.values import make_dynamic_cache
from torchferry.values.flatten import register_pytrees

DYNAMIC = torch.export.Dim.DYNAMIC
X, Y = (("x",), 0), (("y",), 0)


class Two(torch.nn.Module):
    def forward(self, x, y):
        return torch.cat([x, y]), x * 2


class Added(torch.nn.Module):
    def forward(self, x, y):
        return x + y


class Chosen(torch.nn.Module):
    def forward(self, x):
        rows = x.nonzero()
        return rows, torch.cat([rows, rows + 1]), x[x > 0]


class Decoder(torch.nn.Module):
    def forward(self, input_ids, attention_mask, past_key_values):
        keys = past_key_values.layers[0].keys
        torch._check(attention_mask.shape[1] == keys.shape[2] + input_ids.shape[1])
        return attention_mask.float() @ attention_mask.float().mT, keys * 2, input_ids + 1


def program(model, shapes, *, dynamic, named=True):
    tensors = {name: torch.ones(shape) for name, shape in shapes.items()}
    dims = {name: dict.fromkeys(axes, DYNAMIC) for name, axes in dynamic.items()}
    args, kwargs = ((), tensors) if named else (tuple(tensors.values()), {})
    return torch.export.export(model, args, kwargs, dynamic_shapes=dims)


def two(x=4, y=6, **options):
    return program(Two(), {"x": (x, 3), "y": (y, 3)}, dynamic={"x": [0], "y": [0]}, **options)


def decoder():
    length, past, batch = 2, 5, 3
    cache = make_dynamic_cache([(torch.ones(batch, 1, past, 4),) * 2])
    register_pytrees()
    return torch.export.export(
        Decoder(),
        (torch.ones(batch, length), torch.ones(batch, past + length), cache),
        dynamic_shapes=({0: DYNAMIC, 1: DYNAMIC}, {0: DYNAMIC, 1: DYNAMIC},
                        [[{0: DYNAMIC, 2: DYNAMIC}]] * 2),
    )  # fmt: skip


def shapes(values):
    return {
        v.name: [size if isinstance(size, int) else size.value for size in v.shape] for v in values
    }


def every_dimension(model: ir.Model):
    graphs = [model.graph, *(f.graph for f in model.functions.values())]
    values = [v for g in graphs for n in g.all_nodes() for v in (*n.inputs, *n.outputs)]
    values += [*model.graph.inputs, *model.graph.outputs]
    return {
        str(size.value)
        for value in values
        if value is not None and value.shape is not None
        for size in value.shape
        if not isinstance(size, int) and size.value is not None
    }


def test_sizes_get_the_names_given_everywhere():
    dims = {X: Dim.of("rows"), Y: Dim.of("more")}
    converted = convert(two(), dims=dims)
    assert shapes(converted.graph.inputs) == {"x": ["rows", 3], "y": ["more", 3]}
    assert shapes(converted.graph.outputs) == {
        "output_0": ["more + rows", 3], "output_1": ["rows", 3],
    }  # fmt: skip
    assert every_dimension(converted) == {"rows", "more", "more + rows"}


def test_what_is_left_without_a_name_gets_a_usual_one():
    converted = convert(two(), dims={Y: Dim.of("batch_size")})
    assert shapes(converted.graph.inputs) == {"x": ["x_dim_0", 3], "y": ["batch_size", 3]}


def test_without_names_conventions_and_the_examples_decide():
    assert shapes(convert(two()).graph.inputs) == {"x": ["batch_size", 3], "y": ["y_dim_0", 3]}
    alike = name_dimensions(two(4, 4))
    assert {str(size) for size in alike.values()} == {"batch_size"}


def test_a_mask_is_named_by_past_and_sequence():
    named = {key: str(size) for key, size in name_dimensions(decoder()).items()}
    assert named == {
        ("input_ids", 0): "batch_size",
        ("input_ids", 1): "sequence_length",
        ("attention_mask", 0): "batch_size",
        ("attention_mask", 1): "past_sequence_length + sequence_length",
        ("past_key_values.0.key", 0): "batch_size",
        ("past_key_values.0.key", 2): "past_sequence_length",
        ("past_key_values.0.value", 0): "batch_size",
        ("past_key_values.0.value", 2): "past_sequence_length",
    }


def test_arguments_by_position_are_known_by_name():
    assert set(name_dimensions(two(named=False))) == {("x", 0), ("y", 0)}
    converted = convert(two(named=False), dims={((0,), 0): Dim.of("a"), ((1,), 0): Dim.of("b")})
    assert shapes(converted.graph.inputs) == {"x": ["a", 3], "y": ["b", 3]}


def test_an_alias_is_the_same_argument():
    dims = {(("past_key_values", "key_cache", 0), 2): Dim.of("kept")}

    class Cached(torch.nn.Module):
        def forward(self, cache):
            return cache["key_cache"][0] * 2

    exported = torch.export.export(
        Cached(), (), {"cache": {"key_cache": [torch.ones(1, 1, 3, 4)]}},
        dynamic_shapes={"cache": {"key_cache": [{2: DYNAMIC}]}},
    )  # fmt: skip
    assert shapes(convert(exported, dims=dims).graph.inputs) == {
        "past_key_values.0.key": [1, 1, "kept", 4]
    }


def test_symbols_of_torch_never_leak():
    exported = program(Chosen(), {"x": (4,)}, dynamic={"x": [0]})
    converted = convert(exported, dims={X: Dim.of("rows")})
    found = every_dimension(converted)
    assert not [size for size in found if re.search(r"\b[su]\d+\b", size)]
    outputs = shapes(converted.graph.outputs)
    chosen, other = outputs["output_0"][0], outputs["output_2"][0]
    assert re.fullmatch(r"data_dependent_\d", chosen)
    assert re.fullmatch(r"data_dependent_\d", other)
    assert chosen != other
    assert outputs["output_1"] == [f"2*{chosen}", 1]


def test_two_sizes_that_the_code_takes_for_one_cannot_be_called_differently():
    exported = program(Added(), {"x": (4,), "y": (4,)}, dynamic={"x": [0], "y": [0]})
    with pytest.raises(ConversionError, match=r"y axis 0 is called b, but the program uses .* a "):
        convert(exported, dims={X: Dim.of("a"), Y: Dim.of("b")})
    same = convert(exported, dims={X: Dim.of("a"), Y: Dim.of("a")})
    assert shapes(same.graph.outputs) == {"output": ["a"]}


def test_a_size_that_is_constant_in_the_program_stays_so():
    exported = program(Two(), {"x": (4, 3), "y": (6, 3)}, dynamic={"x": [0], "y": []})
    converted = convert(exported, dims={X: Dim.of("a"), Y: Dim.of("b")})
    assert shapes(converted.graph.inputs) == {"x": ["a", 3], "y": [6, 3]}
    assert shapes(converted.graph.outputs)["output_0"] == ["a + 6", 3]
