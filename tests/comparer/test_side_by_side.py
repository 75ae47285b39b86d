from __future__ import annotations

import json
import math

import numpy as np
import onnx_ir as ir
import pytest
import torch

import torchferry
from torchferry.comparer import compare
from torchferry.converter import convert
from torchferry.errors import UsageError
from torchferry.values.signature import SIGNATURE_KEY


def test_it_is_a_public_name():
    assert torchferry.compare is compare


@pytest.mark.parametrize("feed", ["own", "torch"])
@pytest.mark.parametrize("level", ["none", "all"])
def test_a_right_model_agrees(small, feed, level):
    found = compare(small.module, small.onnx, small.args, feed=feed, level=level)
    assert found.ok
    assert str(found) == "10 values agree, 8 have no counterpart"  # of SiLU and argmax
    assert found.nodes == len(small.onnx.graph)
    assert set(found.outputs) == {"logits", "top"}
    assert found.stages == found.suspects == found.notes == ()


def test_eager_mode_is_a_reference_without_any_capture(small):
    found = compare(small.module, small.onnx, small.args, against="eager")
    assert found.ok
    assert {row.origin for row in found.rows} >= {"blocks.0", "blocks.1.norm", "output:0"}
    small.spoil(small.node("LayerNormalization", 1), 1)
    found = compare(small.module, small.onnx, small.args, against="eager")
    assert found.first.origin == "blocks.1.norm"
    assert found.differing == ("logits",)


# Four faults in one model ----------------------------------------------------------------------


def weight(small):
    return small.spoil(small.node("Gemm", 1), 1)


def axis(small):
    node = small.node("LayerNormalization", 1)
    node.attributes["axis"] = ir.AttrInt64("axis", 0)
    return str(node.name)


def epsilon(small):
    node = small.node("LayerNormalization", 0)
    node.attributes["epsilon"] = ir.AttrFloat32("epsilon", 0.01)
    return str(node.name)


def half(small):
    node = small.node("Mul", 1)
    value = node.outputs[0]
    users = list(value.uses())
    down = ir.node("Cast", [value], {"to": ir.DataType.FLOAT16}, name="down")
    up = ir.node("Cast", [down.outputs[0]], {"to": ir.DataType.FLOAT}, name="up")
    for user, index in users:
        user.replace_input_with(index, up.outputs[0])
    small.onnx.graph.insert_after(node, [down, up])
    up.outputs[0].name, value.name, down.outputs[0].name = value.name, "wide", "narrow"
    for cast in (down, up):
        cast.metadata_props.update(node.metadata_props)
    return "down", "up"


@pytest.mark.parametrize("feed", ["own", "torch"])
@pytest.mark.parametrize("plant", [weight, axis, epsilon, half])
def test_the_node_with_the_fault_is_named(small, plant, feed):
    planted = plant(small)
    found = compare(small.program, small.onnx, feed=feed)
    assert not found.ok
    assert found.suspects == (planted if isinstance(planted, tuple) else (planted,))
    assert found.first.verdict in ("differs", "failed")


def test_a_fault_is_named_between_two_onnx_models_too(small):
    before = convert(small.program)
    node = weight(small)
    found = compare(before, small.onnx, {"x": small.args[0]})
    assert found.suspects == (node,)
    assert found.unaligned == 0
    assert compare(before, convert(small.program)).ok


# What else can be told -------------------------------------------------------------------------


def test_tolerances_may_be_given(small):
    weight(small)
    assert compare(small.program, small.onnx, atol=1.0, rtol=1.0).ok
    assert not compare(small.program, convert(small.program), atol=0.0, rtol=0.0).ok
    with pytest.raises(UsageError, match="tolerances are 0 or more, not atol=-1"):
        compare(small.program, small.onnx, atol=-1)
    with pytest.raises(UsageError, match="tolerances are 0 or more"):
        compare(small.program, small.onnx, rtol=math.nan)


def test_nan_on_one_side_is_counted(small):
    node = small.node("Gemm", 0)
    small.spoil(node, 1, factor=math.nan)
    first = compare(small.program, small.onnx).first
    assert first.name == "linear"
    assert (first.expected.nans, first.got.nans) == (0, 18)
    assert first.error.dnan == 18


def test_the_capture_is_compared_with_eager_mode(small):
    with torch.no_grad():
        small.module.head.bias.add_(1)
    model = convert(small.program)  # of the new weights, which the program shares
    module = type(small.module)().eval()
    program = torchferry.to_onnx(small.module, small.args)
    program.program, program.model = small.program, model
    found = compare(module, program, small.args)
    assert not found.ok
    assert not found.captured
    assert found.first is None
    assert "the capture is wrong" in found.notes[0]


def test_steps_are_told(small):
    told = []
    compare(small.program, small.onnx, progress=told.append)
    assert told == ["prepare", "run side by side", "explain"]
    compare(small.program, small.onnx, [small.args] * 2, progress=told.append)
    assert told[3:] == ["prepare", "run side by side", "run side by side, set 2", "explain"]


@pytest.mark.parametrize("against", ["program", "eager"])
def test_the_worst_of_several_sets_is_told(small, against, tmp_path):
    """The last is far outside of what the faulty node is right for."""
    node = small.node("LayerNormalization")
    node.attributes["epsilon"] = ir.AttrFloat32("epsilon", 1e-3)
    sets = [(100 * torch.randn(3, 6),) for _ in range(2)] + [(0.01 * torch.randn(3, 6),)]
    path = tmp_path / "first.onnx"
    found = compare(small.module, small.onnx, sets, against=against, cut=path)
    assert not found.ok
    assert found.place == 3
    assert "set 3 of 3 differs; this is about set 3 of the inputs" in found.notes
    assert found.cut == path
    right = compare(small.module, small.onnx, sets[:2], against=against)
    assert right.ok
    assert right.notes[0].startswith("all 2 sets agree; this is about set ")


@pytest.mark.parametrize("against", ["program", "eager"])
def test_the_model_and_the_random_numbers_stay_as_they_were(against):
    model = torch.nn.Sequential(torch.nn.BatchNorm1d(4), torch.nn.Dropout())
    x = torch.rand(3, 4)
    converted = torchferry.to_onnx(model.eval(), (x,)).model
    model.train()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    state = torch.get_rng_state()
    assert not compare(model, converted, (x,), against=against).ok
    assert torch.equal(state, torch.get_rng_state())
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())


def test_random_outputs_are_compared_with_the_numbers_of_the_reference():
    class Noisy(torch.nn.Module):
        def forward(self, x):
            noise = torch.rand_like(x)
            return x + noise, noise

    x = torch.rand(9)
    program = torch.export.export(Noisy(), (x,))
    found = compare(program, convert(program), bisect=True)
    assert found.ok
    assert found.outputs["output_0"].abs < 1e-6
    assert found.outputs["output_1"].abs > 1e-3
    assert "the steps are not compared" in found.notes[-1]
    assert found.stages == ()


def test_an_output_that_the_reference_does_not_have_is_told(small):
    more = small.node("Gemm").outputs[0]
    small.onnx.graph.outputs.append(small.node("Sigmoid").outputs[0])
    small.onnx.graph.outputs.append(more)
    found = compare(small.program, small.onnx, small.args)
    assert not found.ok
    assert found.open == (small.node("Sigmoid").outputs[0].name,)
    assert set(found.outputs) >= {"linear"}


def test_stages_are_bisected_on_request(small):
    weight(small)
    found = compare(small.program, small.onnx, bisect=True)
    assert [stage.ok for stage in found.stages] == [True] * 3 + [False] * 4


def test_a_model_of_16_bits_is_compared_as_coarsely_as_it_computes():
    module = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.LayerNorm(64)).half().eval()
    x = torch.randn(4, 64).half()
    program = torch.export.export(module, (x,))
    found = compare(program, convert(program), feed="torch")
    assert found.ok
    assert found.tolerance.atol > 1e-3


class Pair(torch.nn.Module):
    def forward(self, x):
        return x * 3, x * 2


class Twice(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 4)

    def forward(self, x):
        return self.layer(torch.tanh(self.layer(x)))


def with_outputs(model, change):
    """An ONNX model of a module, its list of outputs changed."""
    converted = torchferry.to_onnx(model, (torch.randn(3, 4),)).model
    change(converted.graph)
    return converted


def constant_output(graph):
    value = ir.val("folded", const_value=ir.tensor(np.zeros((3, 4), np.float32), name="folded"))
    graph.register_initializer(value)
    graph.outputs[0] = value


def input_as_output(graph):
    graph.outputs[0] = graph.inputs[0]


def one_for_two(graph):
    graph.outputs[0] = graph.outputs[1]


@pytest.mark.sample(3)
@pytest.mark.parametrize("against", ["program", "eager"])
@pytest.mark.parametrize("change", [constant_output, input_as_output, one_for_two])
def test_every_output_is_compared_whatever_makes_it(change, against):
    wrong = with_outputs(Pair(), change)
    given = (torch.randn(3, 4),)
    assert not compare(Pair(), wrong, given, against=against).ok
    right = with_outputs(Pair(), lambda graph: None)
    assert compare(Pair(), right, given, against=against).ok
    assert len(wrong.graph.outputs) == 2
    assert not any(node.op_type == "Identity" for node in wrong.graph)


def test_an_output_that_is_missing_is_refused_or_told():
    wrong = with_outputs(Pair(), lambda graph: graph.outputs.pop())
    with pytest.raises(UsageError, match=r"2 outputs, the .* only 1"):
        compare(with_outputs(Pair(), lambda graph: None), wrong)
    for against in ("program", "eager"):
        found = compare(Pair(), wrong, (torch.randn(3, 4),), against=against)
        assert found.ok
        assert found.notes == ("the ONNX model leaves out output_1",)


def test_a_module_called_twice_is_its_last_call_when_that_is_the_output():
    model = Twice().eval()
    converted = torchferry.to_onnx(model, (torch.randn(3, 4),)).model
    assert compare(model, converted, (torch.randn(3, 4),), against="eager").ok


@pytest.mark.parametrize("against", ["program", "eager"])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_casts_that_an_export_puts_in_are_seen_through(dtype, against):
    model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Tanh(), torch.nn.Linear(8, 4))
    model, x = model.to(dtype).eval(), torch.randn(3, 8).to(dtype)
    program = torchferry.export(model, [(x,), (torch.randn(5, 8).to(dtype),)])
    found = compare(model, program, (x,), against=against)
    assert found.ok
    assert {str(row.got).split("[")[0] for row in found.rows} == {str(dtype)[6:]}
    assert against == "eager" or len(found.rows) == 3


@pytest.mark.parametrize("against", ["program", "eager"])
def test_complex_inputs_and_numbers_are_compared(against):
    class Turned(torch.nn.Module):
        def forward(self, z, n):
            return z * n, n + 1

    z = torch.randn(3, 2, dtype=torch.complex64)
    shapes = (None, torch.export.Dim.DYNAMIC)
    program = torchferry.to_onnx(Turned(), (z, 3), dynamic_shapes=shapes)
    found = compare(Turned(), program, (z, 5), against=against)
    assert found.ok
    assert len(found.outputs) == 2


def test_what_cannot_be_compared_is_not_said_to_differ():
    """Each side draws its own numbers; in training mode dropout does."""

    class Noisy(torch.nn.Module):
        def forward(self, x):
            return x + torch.rand_like(x), -x

    sets = [(torch.rand(3, 4),) for _ in range(2)]
    module = Noisy()
    onnx = torchferry.to_onnx(module.eval(), sets[0]).model
    for training in (False, True):
        found = compare(module.train(training), onnx, sets, against="eager")
        assert not found.ok
        assert not found.differing
        told = f"sets 1, 2 of 2 cannot be compared in full; this is about set {found.place} of "
        assert any(note.startswith(told) for note in found.notes)
        assert any("call .eval()" in note for note in found.notes) is training


def test_sizes_that_the_program_was_not_captured_for_are_a_note(caplog):
    class Negated(torch.nn.Module):
        def forward(self, x):
            return -x

    x = torch.rand(2, 3)
    made = torchferry.to_onnx(Negated(), (x,), dynamic_shapes={"x": {0: "batch"}})
    model = ir.from_proto(ir.to_proto(made.model))
    text = json.loads(model.metadata_props[SIGNATURE_KEY])
    text["conditions"] = [["n0 != 1", ["batch"]]]
    model.metadata_props[SIGNATURE_KEY] = json.dumps(text)
    found = compare(Negated(), model, (x[:1],))
    assert found.ok
    (note,) = found.notes
    assert note.startswith("the program was captured for sizes with batch != 1, which these inp")
    assert compare(Negated(), model, (x,)).notes == ()
    assert "torchferry" not in {record.name for record in caplog.records}
