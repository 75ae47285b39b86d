from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx_ir as ir
import pytest
import torch

from torchferry.comparer import compare
from torchferry.comparer.run.branches import with_branches_taken
from torchferry.comparer.run.piece import Runner, ort_value, tensor_of_ort
from torchferry.converter import convert
from torchferry.graph import io

MERGED = Path(__file__).parents[2] / "optimizer" / "optimum" / "bart_merged.onnx"
HEAD = '<ir_version: 10, opset_import: ["" : 20]>\n'
NESTED = """g (float[3] x, bool first) => (float[3] y, float[3] z, float[3] same)
    <bool[1] never = {0}, float[3] b = {1, 2, 3}> {
    a = Neg(x)
    y, z, same = If (first) <
        then_branch = g1 () => (float[3] y1, float[3] z1, float[3] s1) {
            d = Exp(a)
            s1 = Identity(x)
            y1, z1 = If (never) <
                then_branch = g3 () => (float[3] y3, float[3] z3) { y3 = Abs(b) z3 = Neg(b) },
                else_branch = g4 () => (float[3] y4, float[3] z4) { y4 = Add(b, d) z4 = Neg(y4) }
            >
        },
        else_branch = g2 () => (float[3] y2, float[3] z2, float[3] s2) <float[3] w = {4, 5, 6}> {
            y2 = Sin(a) z2 = Add(y2, w) s2 = Identity(x)
        }
    >
}"""


def nested() -> ir.Model:
    model = ir.from_onnx_text(HEAD + NESTED)
    for node in model.graph.all_nodes():
        node.name = node.op_type
    return model


def results(model, feeds):
    given = {name: ort_value(tensor) for name, tensor in feeds.items()}
    return {name: tensor_of_ort(value) for name, value in Runner()(model, given).items()}


@pytest.mark.parametrize("first", [True, False])
def test_branches_stand_in_the_place_of_their_if(first):
    model = nested()
    feeds = {"x": torch.rand(3), "first": torch.tensor(first)}
    before = results(model, feeds)
    made, told = with_branches_taken(model, feeds)
    assert "If" not in {node.op_type for node in made.graph}
    after = results(made, feeds)
    assert before.keys() == after.keys()
    assert all(torch.equal(before[name], after[name]) for name in before)
    branch = "then_branch" if first else "else_branch"
    assert told[0] == f"If If: its {branch} is what is taken on these inputs"
    assert len(told) == (2 if first else 1)
    assert [node.op_type for node in model.graph] == ["Neg", "If"]  # as it was
    inner = {"Exp", "Add"} if first else {"Sin"}
    assert inner <= {node.op_type for node in made.graph}


def test_a_name_that_is_in_use_is_called_after_its_if():
    text = """g (float[3] x, bool first) => (float[3] y) {
        a = If (first) < then_branch = g1 () => (float[3] c) { d = Abs(x) c = Exp(d) },
                         else_branch = g2 () => (float[3] c) { c = Sin(x) } >
        d = Neg(a)
        y = Add(d, a)
    }"""
    model = ir.from_onnx_text(HEAD + text)
    model.graph[0].name = "which"
    feeds = {"x": torch.rand(3), "first": torch.tensor(True)}
    made, _ = with_branches_taken(model, feeds)
    assert [node.outputs[0].name for node in made.graph] == ["which/d", "c", "a", "d", "y"]
    assert torch.equal(results(made, feeds)["y"], results(model, feeds)["y"])


def test_without_an_if_and_where_it_cannot_be_run_a_model_stays_itself(small):
    assert with_branches_taken(small.onnx, {}) == (small.onnx, ())
    text = """g (float[3] x) => (float[3] y) { c = NoSuchOperator(x)
        y = If (c) < then_branch = g1 () => (float[3] a) { a = Abs(x) },
                     else_branch = g2 () => (float[3] b) { b = Sin(x) } > }"""
    model = ir.from_onnx_text(HEAD + text)
    assert with_branches_taken(model, {"x": torch.rand(3)}) == (model, ())


def test_a_fault_within_a_branch_of_a_decoder_is_found():
    right, wrong = io.load(MERGED), io.load(MERGED)
    weight = next(
        value
        for value in wrong.graph.initializers.values()
        if any("/fc1/" in str(use.node.name) and value.shape.rank() == 2 for use in value.uses())
    )
    weight.const_value = ir.tensor(weight.const_value.numpy() * np.float32(1.3), name=weight.name)
    found = compare(right, wrong)
    assert found.suspects == ("/model/decoder/layers.0/fc1/MatMul",)
    assert "If optimum::if: its else_branch is what is taken on these inputs" in found.notes
    assert compare(right, right).ok


@pytest.mark.parametrize("sign", [1.0, -1.0])
@pytest.mark.parametrize("against", ["program", "eager"])
def test_names_within_a_branch_of_a_program_are_not_those_outside(sign, against):
    """Each graph of a program counts its nodes from 0: sin stands in a branch and outside."""

    class Chooses(torch.nn.Module):
        def forward(self, x):
            y = torch.cond(x.sum() > 0, lambda x: x.sin().exp(), lambda x: x.cos(), (x,))
            return y.sin() + 1

    x = sign * torch.rand(3)
    program = torch.export.export(Chooses(), (x,))
    model = convert(program)
    reference = program if against == "program" else Chooses()
    assert compare(reference, model, (x,), against=against).ok
    *_, last = (node for node in model.graph if node.op_type == "Sin")
    last.op_type = "Cos"
    assert compare(reference, model, (x,), against=against).suspects == (last.name,)
