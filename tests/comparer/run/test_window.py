from __future__ import annotations

import onnx_ir as ir
import pytest
import torch

from torchferry.comparer.run.piece import Runner, ort_value, tensor_of_ort
from torchferry.comparer.run.window import Windows

MODEL = """<ir_version: 10, opset_import: ["" : 20]>
main (float[N] x) => (float[N] y)
{
  a = Exp(x)
  b = Neg(a)
  c = Add(b, a)
  d = Sub(c, x)
  y = Add(d, a)
}"""
X = torch.tensor([0.5, -1.0])


@pytest.fixture
def model() -> ir.Model:
    return ir.from_onnx_text(MODEL)


def expected():
    a = X.exp()
    b = -a
    c = b + a
    d = c - X
    return {"a": a, "b": b, "c": c, "d": d, "y": d + a}


@pytest.mark.parametrize("size", [1, 2, 3, 5])
def test_windows_of_any_size_compute_the_same(model, size):
    windows = Windows(model, {"x": ort_value(X)}, Runner())
    nodes, found = list(model.graph), {}
    for start in range(0, len(nodes), size):
        found |= windows.run(nodes[start : start + size], {"a", "b", "c", "d", "y"})
    assert found.keys() == expected().keys()
    for name, tensor in expected().items():
        torch.testing.assert_close(tensor_of_ort(found[name]), tensor)


def test_only_what_is_needed_later_is_carried(model):
    windows = Windows(model, {"x": ort_value(X)}, Runner())
    nodes = list(model.graph)
    windows.run(nodes[:2], ())
    assert set(windows._carried) == {"x", "a", "b"}
    windows.run(nodes[2:4], ())
    assert set(windows._carried) == {"a", "d"}
    windows.run(nodes[4:], ())
    assert set(windows._carried) == set()


def test_references_stand_for_what_was_computed(model):
    windows = Windows(model, {"x": ort_value(X)}, Runner())
    nodes, ones = list(model.graph), torch.ones(2)
    first = windows.run(nodes[:2], {"a", "b"}, {"a": ort_value(ones)})
    torch.testing.assert_close(tensor_of_ort(first["a"]), X.exp())  # its own, from x
    assert tensor_of_ort(first["b"]).tolist() == [-1, -1]  # from the reference
    last = windows.run(nodes[2:], {"y"})
    torch.testing.assert_close(tensor_of_ort(last["y"]), 1 - X)


def test_the_node_that_fails_is_found_and_the_others_run(model):
    node = model.graph[2]
    bad = ir.node("Reshape", [node.inputs[0], node.inputs[1]], name="bad")  # not int64: refused
    model.graph.insert_before(node, [bad])
    bad.outputs[0].name = "e"
    node.replace_input_with(0, bad.outputs[0])
    windows = Windows(model, {"x": ort_value(X)}, Runner())
    found = windows.run(list(model.graph), {"a", "b", "c", "d", "y", "e"})
    assert set(found) == {"a", "b"}
    assert list(windows.failed) == [bad]
    assert "onnxruntime: " in windows.failed[bad]


def test_after_a_failure_references_let_the_rest_run(model):
    node = model.graph[2]
    bad = ir.node("Reshape", [node.inputs[0], node.inputs[1]], name="bad")
    model.graph.insert_before(node, [bad])
    bad.outputs[0].name = "e"
    node.replace_input_with(0, bad.outputs[0])
    windows = Windows(model, {"x": ort_value(X)}, Runner())
    found = windows.run(list(model.graph), {"c", "y"}, {"e": ort_value(-X.exp())})
    torch.testing.assert_close(tensor_of_ort(found["y"]), expected()["y"])


def test_what_is_carried_may_be_given_another_value(model):
    windows = Windows(model, {"x": ort_value(X)}, Runner())
    nodes, ones = list(model.graph), torch.ones(2)
    windows.run(nodes[:2], ())
    torch.testing.assert_close(tensor_of_ort(windows.carried("a")), X.exp())
    assert windows.carried("y") is None
    windows.give("a", ort_value(ones))
    windows.give("y", ort_value(ones))  # which nothing reads
    found = windows.run(nodes[2:], {"c", "y"})
    torch.testing.assert_close(tensor_of_ort(found["c"]), 1 - X.exp())
    torch.testing.assert_close(tensor_of_ort(found["y"]), (1 - X.exp()) - X + 1)
