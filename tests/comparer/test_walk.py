from __future__ import annotations

import onnx_ir as ir
import pytest
import torch

from torchferry.comparer import walk as walks
from torchferry.comparer.run.piece import Runner
from torchferry.comparer.setting import set_up
from torchferry.comparer.walk import Walk
from torchferry.converter import convert
from torchferry.errors import UsageError
from torchferry.judge.tolerance import Tolerance


def allows(expected, difference):
    return Tolerance.inside(torch.float32).allows(difference, expected)


def walked(small, feed="own"):
    (setting,), _ = set_up(small.program, small.onnx, None, against="program", runner=Runner())
    walk = Walk(setting, feed, allows)
    walk.run()
    return walk


@pytest.mark.parametrize("feed", ["own", "torch"])
@pytest.mark.parametrize("nodes", [1, 4, 128])
def test_all_values_of_a_right_model_agree(small, monkeypatch, feed, nodes):
    monkeypatch.setattr(walks, "_NODES", nodes)
    rows = walked(small, feed).rows
    assert len(rows) == 10
    assert {row.verdict for row in rows} == {"equal"}
    assert all((row.local is None) == (feed == "own") for row in rows)
    layers = {row.name: row.layer for row in rows}
    assert layers["silu_1"] == "blocks.1.act"
    assert layers["logits"] == "head"


def test_a_window_ends_when_it_holds_enough(small, monkeypatch):
    monkeypatch.setattr(walks, "_WINDOW", 1)
    calls = []
    run = walks.Windows.run

    def counted(self, nodes, *rest):
        calls.append(nodes)
        return run(self, nodes, *rest)

    monkeypatch.setattr(walks.Windows, "run", counted)
    assert {row.verdict for row in walked(small).rows} == {"equal"}
    # What has no counterpart, as Sigmoid, goes with what follows.
    assert 10 <= len(calls) < len(small.onnx.graph)
    assert [node for nodes in calls for node in nodes] == list(small.onnx.graph)


def test_with_own_inputs_what_follows_a_fault_differs_too(small):
    small.spoil(small.node("Gemm"), 1)
    found = walked(small).comparison()
    verdicts = {row.name: row.verdict for row in found.rows}
    assert verdicts["layer_norm"] == "equal"
    assert verdicts["linear"] == verdicts["add"] == verdicts["add_1"] == "differs"
    assert found.first.name == "linear"


def test_with_the_references_inputs_only_the_fault_differs(small):
    small.spoil(small.node("Gemm"), 1)
    found = walked(small, "torch").comparison()
    assert [row.name for row in found.rows if row.verdict == "differs"] == ["linear"]
    assert found.first.name == "linear"
    assert found.first.local.abs == pytest.approx(found.first.error.abs, rel=1e-3)
    later = next(row for row in found.rows if row.name == "add")
    assert later.error.abs > 1e-3 > later.local.abs


def test_another_shape_is_a_difference_and_says_so(small):
    class Joined(torch.nn.Module):
        def forward(self, x):
            return torch.cat([x, x], 0).exp()

    program = torch.export.export(Joined(), (torch.rand(2, 3),))
    small.program, small.onnx = program, convert(program)
    small.node("Concat").attributes["axis"] = ir.AttrInt64("axis", 1)
    found = walked(small).comparison()
    assert found.first.name == "cat"
    assert found.first.error.reason == "the value: expected shape (4, 3), got (2, 6)"
    rows = {row.name: row.verdict for row in walked(small, "torch").rows}
    assert rows == {"cat": "differs", "output": "equal"}


def fail(small):
    """Give a node an attribute that onnxruntime refuses; its name."""
    node = small.node("LayerNormalization", 1)
    node.attributes["axis"] = ir.AttrInt64("axis", 7)
    return node


def test_a_node_that_fails_is_the_first_and_what_follows_is_not_computed(small):
    node = fail(small)
    found = walked(small).comparison()
    assert (found.first.name, found.first.verdict) == ("layer_norm_1", "failed")
    assert found.first.note.startswith("onnxruntime: ")
    assert found.first.got is None
    later = next(row for row in found.rows if row.name == "logits")
    assert later.verdict == "failed"
    assert later.note.startswith(f"LayerNormalization {node.name} before it failed: ")
    assert found.notes[0].startswith(f"LayerNormalization {node.name}: onnxruntime: ")


def test_what_follows_a_failing_node_is_compared_on_reference_values(small):
    fail(small)
    rows = {row.name: row.verdict for row in walked(small, "torch").rows}
    assert rows.pop("layer_norm_1") == "failed"
    assert set(rows.values()) == {"equal"}


class Noisy(torch.nn.Module):
    def forward(self, x):
        return (x + torch.rand_like(x)) * 3, x * 2


@pytest.mark.parametrize("feed", ["own", "torch"])
def test_random_values_are_called_random_and_what_follows_is_compared(small, feed):
    small.program = torch.export.export(Noisy(), (torch.rand(50),))
    small.onnx = convert(small.program)
    walk = walked(small, feed)
    rows = {row.name: row for row in walk.rows}
    assert rows.pop("rand_like").verdict == "random"
    assert {row.verdict for row in rows.values()} == {"equal"}
    assert set(walk.chosen) == {"rand_like"}
    assert rows["output_0"].error.abs < 1e-5
    small.node("Mul").attributes.clear()
    three = next(v for v in small.node("Mul").inputs if v.const_value is not None)
    three.const_value = ir.tensor(three.const_value.numpy() * 1.5)
    assert walked(small, feed).comparison().first.name == "output_0"


@pytest.mark.parametrize("feed", ["own", "torch"])
def test_what_depends_on_random_numbers_of_one_side_cannot_be_compared(small, feed):
    small.program = torch.export.export(Noisy(), (torch.rand(50),))
    small.onnx = convert(small.program)
    draw = small.node("RandomUniformLike")
    draw.metadata_props.clear()
    draw.outputs[0].name = "another"
    rows = {row.name: row for row in walked(small, feed).rows}
    assert rows["add"].verdict == "incomparable"
    assert rows["add"].note == "it depends on random numbers that each side draws for itself"
    assert rows["output_0"].verdict == ("incomparable" if feed == "own" else "equal")
    assert rows["output_1"].verdict == "equal"


@pytest.mark.parametrize("feed", ["own", "torch"])
def test_what_only_the_reference_draws_is_a_difference(small, feed):
    small.program = torch.export.export(Noisy(), (torch.rand(50),))
    small.onnx = convert(small.program)
    draw = small.node("RandomUniformLike")
    draw.op_type = "Identity"
    draw.attributes.clear()
    found = walked(small, feed).comparison()
    assert found.first.name == "rand_like"
    assert "the ONNX model has the same in every run" in found.first.note


@pytest.mark.parametrize("feed", ["own", "torch"])
def test_what_only_the_onnx_model_draws_is_a_difference(small, feed):
    value = small.node("Gemm").outputs[0]
    users = list(value.uses())
    noise = ir.node("RandomUniformLike", [value], name="noise")
    added = ir.node("Add", [value, noise.outputs[0]], name="added")
    small.onnx.graph.insert_after(value.producer(), [noise, added])
    for user, index in users:
        user.replace_input_with(index, added.outputs[0])
    value.name, added.outputs[0].name, noise.outputs[0].name = "before", "linear", "noise"
    added.metadata_props.update(value.producer().metadata_props)
    found = walked(small, feed).comparison()
    assert (found.first.name, found.first.verdict) == ("linear", "differs")
    assert "the ONNX model draws random numbers" in found.first.note


def test_an_unknown_feed_is_refused(small):
    with pytest.raises(UsageError, match="unknown feed 'eager': choose own or torch"):
        walked(small, "eager")


def test_a_model_without_counterparts_is_refused(small):
    other = convert(small.program)
    for value in (value for node in other.graph for value in node.outputs):
        value.name = f"{value.name}_other"
    other.graph.outputs.pop()
    norm = next(node for node in other.graph if node.op_type == "LayerNormalization")
    norm.attributes["epsilon"] = ir.AttrFloat32("epsilon", 0.5)  # nor has it the same numbers
    for node in other.graph:
        node.metadata_props.clear()
    (setting,), _ = set_up(other, small.onnx, None, against="program", runner=Runner())
    walk = Walk(setting, "own", allows)
    walk.run()
    with pytest.raises(UsageError, match="no value of the ONNX model could be aligned"):
        walk.comparison()


def in_more_precision(op_type: str) -> tuple[torch.export.ExportedProgram, ir.Model]:
    """A program in half precision, and a graph that computes one value of it in float32."""

    class Half(torch.nn.Module):
        def forward(self, x):
            return x.abs().exp()

    program = torch.export.export(Half(), (torch.rand(2, 3).half(),))
    model = convert(program)
    node = next(node for node in model.graph if node.op_type == "Abs")
    node.op_type = op_type
    value = node.outputs[0]
    (reader, index), *_ = value.uses()
    up = ir.node("Cast", [node.inputs[0]], {"to": ir.DataType.FLOAT}, name="up")
    down = ir.node("Cast", [value], {"to": ir.DataType.FLOAT16}, name="down")
    node.replace_input_with(0, up.outputs[0])
    reader.replace_input_with(index, down.outputs[0])
    model.graph.insert_before(node, up)
    model.graph.insert_after(node, down)
    value.dtype = ir.DataType.FLOAT
    return program, model


@pytest.mark.parametrize("feed", ["own", "torch"])
@pytest.mark.parametrize(("op_type", "verdict"), [("Abs", "equal"), ("Neg", "differs")])
def test_a_value_within_may_be_computed_in_more_precision(feed, op_type, verdict):
    program, model = in_more_precision(op_type)
    (setting,), _ = set_up(program, model, None, against="program", runner=Runner())
    walk = Walk(setting, feed, allows)
    walk.run()
    row = walk.rows[0]
    assert (str(row.expected), str(row.got)) == ("float16[2, 3]", "float32[2, 3]")
    assert row.verdict == verdict


def test_an_output_in_more_precision_is_another():
    program, model = in_more_precision("Abs")
    output = model.graph.outputs[0]
    up = ir.node("Cast", [output], {"to": ir.DataType.FLOAT}, name="wide")
    output.name, up.outputs[0].name = "narrow", output.name
    up.outputs[0].dtype, up.outputs[0].shape = ir.DataType.FLOAT, output.shape
    model.graph.outputs[0] = up.outputs[0]
    model.graph.append(up)
    (setting,), _ = set_up(program, model, None, against="program", runner=Runner())
    walk = Walk(setting, "own", allows)
    walk.run()
    assert walk.rows[-1].verdict == "differs"
    assert "expected dtype float16" in walk.rows[-1].error.reason
