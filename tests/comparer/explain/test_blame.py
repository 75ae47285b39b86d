from __future__ import annotations

import onnx_ir as ir
import pytest
import torch

from torchferry.comparer import compare
from torchferry.converter import convert


@pytest.mark.parametrize("number", [0, 1])
def test_of_several_nodes_that_make_a_value_the_one_at_fault_is_named(small, number):
    inner = small.node("Sigmoid", number)  # of SiLU
    bad = ir.node("Tanh", [inner.inputs[0]], name=inner.name)
    bad.metadata_props.update(inner.metadata_props)
    ir.convenience.replace_nodes_and_values(
        small.onnx.graph, inner, [inner], [bad], inner.outputs, bad.outputs
    )
    found = compare(small.program, small.onnx)
    assert found.first.op_type == "Mul"
    assert found.suspects == (bad.name,)


def test_a_lowering_that_is_wrong_itself_leaves_all_its_nodes_suspect(small, monkeypatch):
    # A conversion that is always wrong is no help: then all nodes of the value are named.
    def wrong(model):
        for node in model.graph:
            if node.op_type == "Sigmoid":
                node.op_type = "Tanh"
        return model

    monkeypatch.setattr(
        "torchferry.comparer.reference.anew.convert",
        lambda program, **options: wrong(convert(program)),
    )
    found = compare(small.program, wrong(small.onnx))
    assert len(found.suspects) == 2
    assert found.suspects[1] == found.first.node


def test_a_node_that_fails_within_a_value_is_named(small):
    inner = small.node("Sigmoid")
    inner.op_type = "NoSuchOperator"
    found = compare(small.program, small.onnx)
    assert found.first.verdict == "failed"
    assert found.suspects == (inner.name,)


def copied(small, node, index, op_type="Identity"):
    """Let a node read a copy of its input; gives the node that makes it."""
    copy = ir.node(op_type, [node.inputs[index]], name=f"copy_{index}")
    copy.outputs[0].name = f"copied_{index}"
    small.onnx.graph.insert_before(node, copy)
    node.replace_input_with(index, copy.outputs[0])
    return copy


@pytest.mark.parametrize("op_type", ["Identity", "Dropout"])
def test_what_hands_on_weights_and_values_is_not_to_blame(small, op_type):
    """The TorchScript exporter writes weights that are equal once, and copies of them."""
    node = small.node("LayerNormalization", 1)
    for index in (0, 1, 2):
        copied(small, node, index, op_type)
    node.attributes["epsilon"] = ir.AttrFloat32("epsilon", 0.5)
    for against, reference in (("eager", small.module), ("program", small.program)):
        found = compare(reference, small.onnx, small.args, against=against)
        assert found.suspects == (node.name,)


def test_a_copy_of_something_else_is_to_blame(small):
    """An output that a node of its own hands on may read what it should not."""
    first = small.onnx.graph.outputs[0]
    copy = ir.node("Identity", [small.value("linear_1")], name="copy")
    small.onnx.graph.append(copy)
    small.onnx.graph.outputs[0] = copy.outputs[0]
    copy.outputs[0].name, first.name = "logits", "as_it_was"
    found = compare(small.program, small.onnx)
    assert found.suspects == ("copy",)


def insert_after(small, node, *made):
    """Put nodes between a node and its readers; the last takes over the value's name."""
    value = node.outputs[0]
    users = list(value.uses())
    small.onnx.graph.insert_after(node, list(made))
    made[0].replace_input_with(0, value)
    for user, index in users:
        user.replace_input_with(index, made[-1].outputs[0])
    made[-1].outputs[0].name, value.name = value.name, "as_it_was"
    for one in made:
        one.metadata_props.update(node.metadata_props)


@pytest.mark.parametrize("op_type", ["Add", "Sigmoid"])
def test_a_node_that_makes_the_right_value_is_not_to_blame_for_what_is_put_behind_it(
    small, op_type
):
    node = small.node(op_type)
    x = ir.Value(name="x_unused")
    bad = [ir.node("Sin", [x], name="bad_1"), ir.node("Floor", [x], name="bad_2")]
    bad[1].replace_input_with(0, bad[0].outputs[0])
    bad[0].outputs[0].name = "between"
    insert_after(small, node, *bad)
    found = compare(small.program, small.onnx)
    assert found.suspects == ("bad_1", "bad_2")


def test_between_two_onnx_models_the_same_holds(small):
    before = convert(small.program)
    node = small.node("Gemm")
    x = ir.Value(name="x_unused")
    bad = ir.node("Sin", [x], name="bad")
    insert_after(small, node, bad)
    found = compare(before, small.onnx, {"x": small.args[0]})
    assert found.suspects == ("bad",)


def test_a_wrong_constant_that_a_node_makes_is_named(small):
    class Filled(torch.nn.Module):
        def forward(self, x):
            return x + torch.full((x.shape[0], 3), 2.0)

    x = torch.rand(2, 3)
    shapes = {"x": {0: torch.export.Dim.DYNAMIC}}
    small.program = torch.export.export(Filled(), (x,), dynamic_shapes=shapes)
    small.onnx = convert(small.program)
    node = small.node("Concat")  # of the shape
    index = next(i for i, v in enumerate(node.inputs) if v.is_initializer())
    value = ir.Value(name="wrong", const_value=ir.tensor([1]))
    small.onnx.graph.register_initializer(value)
    node.replace_input_with(index, value)
    found = compare(small.program, small.onnx)
    assert found.suspects == (node.name,)
    assert found.first.error.reason == "the value: expected shape (2, 3), got (2, 1)"
