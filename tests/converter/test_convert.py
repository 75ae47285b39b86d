import subprocess
import sys

import onnx
import onnx_ir as ir
import pytest
import torch
from torch.utils import _pytree as pytree

from torchferry.capturer import accept_aliases, capture, export_arguments
from torchferry.converter import convert, convert_with_torch
from torchferry.converter.convert import OPSETS
from torchferry.dims import Dim
from torchferry.errors import ConversionError, UsageError
from torchferry.observer import Observation
from torchferry.values import max_diff
from torchferry.values.clone import clone
from torchferry.values.kinds import register
from torchferry.zoo import get_tiny_llm

DYNAMIC = torch.export.Dim.DYNAMIC
SMALL = {"vocab_size": 100, "hidden_size": 32, "intermediate_size": 32, "head_dim": 16}
ROWS = {"x": {0: DYNAMIC}}


class Network(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first = torch.nn.Linear(3, 4)
        self.second = torch.nn.Linear(4, 3)
        self.register_buffer("offset", torch.ones(3))

    def forward(self, x):
        return self.second(torch.relu(self.first(x))) + self.offset


class Tied(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = torch.nn.Embedding(7, 5)
        self.head = torch.nn.Linear(5, 7, bias=False)
        self.head.weight = self.embed.weight

    def forward(self, x):
        return self.head(self.embed(x))


class Counts(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("calls", torch.zeros(3))

    def forward(self, x):
        self.calls.add_(1)
        return x + self.calls


class Adds(torch.nn.Module):
    def forward(self, x):
        x.add_(1)
        return x * 2


class Constants(torch.nn.Module):
    """Makes tensors of its own, in submodules and in loops, and writes to what it made."""

    class Inner(torch.nn.Module):
        def forward(self, x):
            y = x.clone()
            for i in range(3):
                y += torch.tensor([1.0, 2.0, float(i)])
                y[:, 0] = torch.tensor(5.0)
            return y

    def __init__(self):
        super().__init__()
        self.blocks = torch.nn.ModuleList([self.Inner(), self.Inner()])

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return x + torch.tensor(3)


@pytest.fixture(scope="module")
def llm():
    """A tiny decoder, two sets of inputs, and its program with the sizes as they were named."""
    model = get_tiny_llm(**SMALL)["model"]
    sets = [((), get_tiny_llm(*size, **SMALL)["inputs"]) for size in ((2, 30, 3), (3, 20, 4))]
    seen = Observation.from_inputs(model, sets)
    return model, seen, capture(model, seen).program


def exported(model, x, dynamic_shapes=ROWS):
    return torch.export.export(model.eval(), (x,), dynamic_shapes=dynamic_shapes)


def sizes_of(seen):
    return {
        (a.path, axis.index): axis.size
        for a in seen.arguments
        for axis in a.axes
        if isinstance(axis.size, Dim)
    }


def check(model, seen, session):
    for call in seen.calls:
        args, kwargs = seen.normalized(call)
        expected = model(*clone(args), **clone(accept_aliases(model, kwargs)))
        assert max_diff(expected, session(*args, **kwargs)).abs < 1e-4


def test_computes_the_same_at_other_sizes(session):
    model = Network()
    run = session(convert(exported(model, torch.randn(2, 3))))
    for n in (1, 2, 7):
        x = torch.randn(n, 3)
        assert max_diff(model(x), run(x)).abs < 1e-5


def test_a_decoder_gets_the_names_that_tools_expect(llm, session):
    model, seen, program = llm
    converted = convert(program, dims=sizes_of(seen))
    shapes = {
        value.name: [str(getattr(size, "value", size)) for size in value.shape]
        for value in [*converted.graph.inputs, *converted.graph.outputs]
    }
    total = "past_sequence_length + sequence_length"
    past = ["batch_size", "1", "past_sequence_length", "16"]
    assert shapes == {
        "input_ids": ["batch_size", "sequence_length"],
        "attention_mask": ["batch_size", total],
        "position_ids": ["batch_size", "sequence_length"],
        "past_key_values.0.key": past,
        "past_key_values.0.value": past,
        "logits": ["batch_size", "sequence_length", "100"],
        "present.0.key": ["batch_size", "1", total, "16"],
        "present.0.value": ["batch_size", "1", total, "16"],
    }
    assert converted.producer_name == "torchferry"
    check(model, seen, session(converted))


def test_without_sizes_given_the_names_are_the_same(llm, session):
    model, seen, program = llm
    converted = convert(program)
    given = convert(program, dims=sizes_of(seen))
    assert [str(v.shape) for v in converted.graph.inputs] == [
        str(v.shape) for v in given.graph.inputs
    ]
    check(model, seen, session(converted))


def test_a_saved_program_is_converted_alike(tmp_path, session):
    model = Network()
    torch.export.save(exported(model, torch.randn(2, 3)), tmp_path / "model.pt2")
    program = torch.export.load(tmp_path / "model.pt2")
    x = torch.randn(5, 3)
    assert max_diff(model(x), session(convert(program))(x)).abs < 1e-5


def test_the_program_is_left_as_it_was(llm):
    model, seen, program = llm
    kwargs = accept_aliases(model, seen.inputs_at(seen.sizes_of(seen.best))[1])
    before = program.module(check_guards=False)(**clone(kwargs)), str(program)
    convert(program)
    assert str(program) == before[1]
    got = program.module(check_guards=False)(**clone(kwargs))
    assert max_diff(before[0], got).abs == 0


def test_weights_are_views_of_the_modules_own():
    model = Network()
    converted = convert(exported(model, torch.randn(2, 3)))
    tensors = dict(model.named_parameters()) | dict(model.named_buffers())
    found = {
        name: value.const_value.raw.data_ptr()
        for name, value in converted.graph.initializers.items()
        if name in tensors
    }
    assert found == {name: tensor.data_ptr() for name, tensor in tensors.items()}


def test_tied_weights_are_stored_once(session):
    model = Tied()
    converted = convert(exported(model, torch.tensor([[1, 2]]), None))
    pointers = [
        value.const_value.raw.data_ptr() for value in converted.graph.initializers.values()
    ]
    assert pointers.count(model.embed.weight.data_ptr()) == 1
    ids = torch.tensor([[3, 4]])
    assert max_diff(model(ids), session(converted)(ids)).abs < 1e-5


@pytest.mark.parametrize("opset", [None, *OPSETS])
def test_every_opset(opset, session):
    model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.GELU(), torch.nn.LayerNorm(4))
    x = torch.randn(2, 3)
    program = torch.export.export(model, (x,))
    converted = convert(program, opset=opset)
    assert converted.opset_imports[""] == (opset or 20)
    needed = onnx.helper.find_min_ir_version_for([onnx.helper.make_opsetid("", opset or 20)])
    assert converted.ir_version == max(10, needed)
    onnx.checker.check_model(ir.to_proto(converted), full_check=True)
    assert max_diff(model(x), session(converted)(x)).abs < 1e-5


@pytest.mark.parametrize("opset", [17, OPSETS.stop, 0, -1])
def test_another_opset_is_refused(opset):
    program = torch.export.export(torch.nn.ReLU(), (torch.ones(2),))
    with pytest.raises(UsageError, match=f"cannot write opset {opset}: choose one from 18 to "):
        convert(program, opset=opset)


def test_constants_made_in_forward_and_writes_to_them_are_fine(session):
    model = Constants()
    run = session(convert(exported(model, torch.randn(2, 3))))
    x = torch.randn(4, 3)
    assert max_diff(model(x), run(x)).abs == 0


def test_a_write_to_a_buffer_is_refused():
    with pytest.raises(ConversionError, match=r"writes to buffer calls, at .*_convert.py"):
        convert(exported(Counts(), torch.randn(2, 3)))


class Box:
    """A container whose library put it into pytrees, and computes when it is put together."""

    def __init__(self, items):
        self.items = items


def box(children):
    return Box([torch.cat([torch.tensor([]), child]) for child in children])


pytree.register_pytree_node(
    Box,
    lambda value: (list(value.items), None),
    lambda children, _: box(children),
    flatten_with_keys_fn=lambda value: (
        [(pytree.SequenceKey(i), item) for i, item in enumerate(value.items)],
        None,
    ),
    serialized_type_name="test.Box",
)
register(
    Box,
    flatten=lambda value: (dict(enumerate(value.items)), None),
    unflatten=lambda cls, children, _: cls(list(children.values())),
)


def test_containers_that_compute_when_they_are_put_together(session):
    class Swap(torch.nn.Module):
        def forward(self, pair):
            first, second = pair.items
            return Box([second + torch.tensor(1.0), first])

    given = Box([torch.randn(2, 3), torch.randn(2, 3)])
    run = session(convert(torch.export.export(Swap(), (given,))))
    assert max_diff(Box([given.items[1] + 1, given.items[0]]), run(given)).abs == 0


FOREIGN = """
import torch, warnings
from pathlib import Path
warnings.simplefilter("ignore")
from transformers import DynamicCache
from transformers.integrations.executorch import register_dynamic_cache_export_support
register_dynamic_cache_export_support()
from torchferry.capturer import capture
from torchferry.converter import convert
from torchferry.observer import Observation
from torchferry.graph import io
from torchferry.runner import Session
from torchferry.values import max_diff
from torchferry.values.clone import clone
from torchferry.zoo import get_tiny_llm

SMALL = dict(vocab_size=100, hidden_size=32, intermediate_size=32, head_dim=16)
model = get_tiny_llm(**SMALL)["model"]
cached = get_tiny_llm(**SMALL)["inputs"]
ids = cached["input_ids"]
empty = dict(input_ids=ids, attention_mask=ids * 0 + 1, past_key_values=DynamicCache())
for kwargs in (cached, empty):
    seen = Observation.from_inputs(model, [((), kwargs)])
    program = capture(model, seen).program
    assert any("CONSTANT" in str(s.kind) for s in program.graph_signature.input_specs)
    io.save(convert(program), Path("model.onnx"))
    got = Session("model.onnx")(**clone(kwargs))
    assert max_diff(model(**clone(kwargs)), got).abs < 1e-4
print("equal")
"""


@pytest.mark.slow
def test_caches_that_transformers_itself_registered_with_pytrees(tmp_path):
    # In another process: what is registered stays registered.
    done = subprocess.run(
        [sys.executable, "-c", FOREIGN], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.stdout == "equal\n", done.stderr


# torch.onnx.export as it stands ------------------------------------------------------------------


@pytest.mark.slow
def test_torch_onnx_gets_our_names_too(llm, session):
    model, seen, _ = llm
    args, kwargs, shapes = export_arguments(model, seen, DYNAMIC)
    converted, program = convert_with_torch(
        model, args, kwargs, dynamic_shapes=shapes, dims=sizes_of(seen)
    )
    assert program.example_inputs is not None
    assert [v.name for v in converted.graph.outputs] == [
        "logits", "present.0.key", "present.0.value",
    ]  # fmt: skip
    assert [str(s) for s in converted.graph.inputs[0].shape] == ["batch_size", "sequence_length"]
    check(model, seen, session(converted))


def test_torch_onnx_may_return_none(session):
    class Optional(torch.nn.Module):
        def forward(self, x):
            return {"y": x + 1, "loss": None}

    converted, _ = convert_with_torch(
        Optional(), (torch.ones(2),), {}, dynamic_shapes=None, opset=21
    )
    assert converted.opset_imports[""] == 21
    x = torch.randn(2)
    assert max_diff({"y": x + 1, "loss": None}, session(converted)(x)).abs == 0


@pytest.mark.parametrize("model", [Counts(), Adds()], ids=type)
def test_torch_onnx_would_lose_a_write(model):
    with pytest.raises(ConversionError, match=r"forward writes to (buffer calls|input)"):
        convert_with_torch(model, (torch.ones(2, 3),), {}, dynamic_shapes=None)


def test_torch_onnx_failing_is_one_sentence():
    class Decides(torch.nn.Module):
        def forward(self, x):
            return x + 1 if x.sum() > 0 else x

    with pytest.raises(ConversionError, match=r"^torch.onnx.export failed: ") as caught:
        convert_with_torch(Decides(), (torch.ones(2),), {}, dynamic_shapes=None)
    assert len(str(caught.value).splitlines()) == 1
    with pytest.raises(UsageError, match="opset 5"):
        convert_with_torch(Decides(), (torch.ones(2),), {}, dynamic_shapes=None, opset=5)


def test_weights_are_kept_as_they_lie_on_demand():
    linear = torch.nn.Linear(3, 4)
    program = torch.export.export(linear, (torch.rand(2, 5, 3),))
    swapped, kept = convert(program), convert(program, as_stored=True)
    assert "Transpose" not in {node.op_type for node in swapped.graph}
    assert "Transpose" in {node.op_type for node in kept.graph}
    assert kept.graph.initializers["weight"].const_value.raw.data_ptr() == linear.weight.data_ptr()
    assert tuple(kept.graph.initializers["weight"].shape) == (4, 3)
