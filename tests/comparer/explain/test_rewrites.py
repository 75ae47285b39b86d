from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest

from torchferry.comparer.explain.rewrites import Rewrite, first_wrong, rewritten
from torchferry.comparer.run.piece import Runner, ort_value, tensor_of_ort
from torchferry.optimizer.rules import identity


def outputs(small, model):
    found = Runner()(model, {"x": ort_value(small.args[0])})
    return [tensor_of_ort(value) for value in found.values()]


@pytest.fixture
def padded(small):
    """The model with two additions of zero and a pair of casts, which rules remove."""
    for node in [n for n in small.onnx.graph if n.op_type == "LayerNormalization"]:
        zero = ir.Value(name=f"zero_{node.name}", const_value=ir.tensor(np.float32(0)))
        zero.type, zero.shape = ir.TensorType(ir.DataType.FLOAT), ir.Shape(())
        small.onnx.graph.register_initializer(zero)
        value = node.outputs[0]
        add = ir.node("Add", [value, zero], name=f"plus_{node.name}")
        for user, index in tuple(value.uses()):
            if user is not add:
                user.replace_input_with(index, add.outputs[0])
        small.onnx.graph.insert_after(node, add)
    return small


def test_a_run_stops_after_as_many_rewrites_as_are_asked_for(padded):
    whole, all_of_them = rewritten(padded.onnx, "default")
    assert len(all_of_them) > 1
    before = len(padded.onnx.graph)
    for most in range(len(all_of_them) + 1):
        made, done = rewritten(padded.onnx, "default", most)
        assert done == all_of_them[:most]
        assert all((a - b).abs().max() < 1e-5 for a, b in zip(
            outputs(padded, made), outputs(padded, padded.onnx), strict=True))  # fmt: skip
    assert len(made.graph) == len(whole.graph)
    assert len(padded.onnx.graph) == before


def test_the_rewrite_that_spoils_a_model_is_found(padded, monkeypatch):
    (_, place) = [str(n.name) for n in padded.onnx.graph if n.op_type == "LayerNormalization"]

    def spoiled(self, b, x):
        producer = x.producer()
        return b.Neg(x) if producer is not None and producer.name == place else x

    monkeypatch.setattr(identity.Neutral, "rewrite", spoiled)
    expected = outputs(padded, padded.onnx)

    def right(model):
        pairs = zip(expected, outputs(padded, model), strict=True)
        return all((a - b).abs().max() < 1e-5 for a, b in pairs)

    found = first_wrong(padded.onnx, "default", right)
    assert found is not None
    assert found.rule == "Neutral"
    before, after = (rewritten(padded.onnx, "default", found.number - n)[0] for n in (1, 0))
    assert [sum(n.op_type == "Neg" for n in m.graph) for m in (before, after)] == [0, 1]


def test_a_model_that_stays_right_has_no_such_rewrite(padded):
    assert first_wrong(padded.onnx, "default", lambda model: True) is None
    assert first_wrong(padded.onnx, "default", lambda model: False) is None  # wrong before


def test_a_rewrite_is_told_in_words():
    assert str(Rewrite(3, "Gelu", ("a", "b"))) == "Gelu, rewrite 3, which made a, b"
    assert str(Rewrite(1, "MergeEqual", ())) == "MergeEqual, rewrite 1"
