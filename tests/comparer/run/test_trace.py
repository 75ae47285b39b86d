from __future__ import annotations

import onnx_ir as ir
import pytest
import torch

from torchferry.comparer.run.piece import ort_value
from torchferry.comparer.run.trace import trace_onnx, trace_program
from torchferry.errors import RunError, UsageError


def test_a_program_gives_every_value_in_order(small):
    found = dict(trace_program(small.program, small.args))
    x = small.args[0]
    block = small.module.blocks[0]
    torch.testing.assert_close(found["layer_norm"], block.norm(x))
    torch.testing.assert_close(found["linear"], block.linear(block.norm(x)))
    torch.testing.assert_close(found["linear_2"], small.module(x)["logits"])
    torch.testing.assert_close(found["argmax"], small.module(x)["top"])
    calls = [n.name for n in small.program.graph.nodes if n.op == "call_function"]
    assert [name for name in found if name in calls] == calls


def test_items_of_a_node_are_numbered():
    class Split(torch.nn.Module):
        def forward(self, x):
            a, b = x.split(2)
            return a + b

    x = torch.arange(4.0)
    program = torch.export.export(Split(), (x,))
    found = dict(trace_program(program, [x]))
    assert found["split:0"].tolist() == [0, 1]
    assert found["split:1"].tolist() == [2, 3]
    assert found["add"].tolist() == [2, 4]


def test_values_are_let_go_after_their_last_use(small):
    import weakref

    seen = {}
    for name, tensor in trace_program(small.program, small.args):
        seen[name] = weakref.ref(tensor)
        if name == "linear_1":
            assert seen["linear"]() is None
        del tensor
    assert "linear" in seen


def test_a_number_may_be_an_input():
    class Add(torch.nn.Module):
        def forward(self, x, n):
            return x + n

    program = torch.export.export(
        Add(), (torch.rand(2), 3), dynamic_shapes=(None, torch.export.Dim.DYNAMIC)
    )
    found = dict(trace_program(program, [torch.ones(2), torch.tensor(7)]))
    assert found["n"].item() == 7
    assert found["add"].tolist() == [8, 8]


def test_numbers_are_given_too():
    class Sized(torch.nn.Module):
        def forward(self, x):
            return x.shape[0] * 2, x.sum().item() + 1

    x = torch.ones(3)
    program = torch.export.export(Sized(), (x,), dynamic_shapes=({0: torch.export.Dim.DYNAMIC},))
    found = dict(trace_program(program, [x]))
    assert found["mul"].item() == 6
    assert found["mul"].dtype == torch.int64
    assert found["add"].item() == 4.0


def test_random_numbers_are_the_same_in_each_run_and_do_not_go_on_outside():
    program = torch.export.export(torch.nn.Dropout(), (torch.ones(20),))
    before = torch.get_rng_state()
    first, again = (dict(trace_program(program, [torch.ones(20)])) for _ in range(2))
    assert torch.equal(before, torch.get_rng_state())
    assert torch.equal(first["dropout"], again["dropout"])
    torch.rand(1)
    other = dict(trace_program(program, [torch.ones(20)]))
    assert not torch.equal(first["dropout"], other["dropout"])


def test_a_program_that_fails_says_where():
    program = torch.export.export(torch.nn.Embedding(3, 2), (torch.tensor([1]),))
    with pytest.raises(UsageError, match=r"fails on these inputs at embedding.*IndexError"):
        list(trace_program(program, [torch.tensor([3])]))


@pytest.mark.parametrize("size", [1, 3, 64])
def test_an_onnx_model_gives_every_value(small, size):
    feeds = {"x": ort_value(small.args[0])}
    found = dict(trace_onnx(small.onnx, feeds, size=size))
    assert list(found) == [v.name for node in small.onnx.graph for v in node.outputs]
    for name, tensor in trace_program(small.program, small.args):
        if name in found:
            torch.testing.assert_close(found[name], tensor)
    assert list(dict(trace_onnx(small.onnx, feeds, wanted={"linear"}))) == ["linear"]


def test_a_failing_node_is_named(small):
    node = small.node("Gemm")
    node.attributes["transB"] = ir.AttrInt64("transB", 0)
    small.spoil(node, 1)
    shape = small.onnx.graph.initializers[node.inputs[1].name]
    shape.const_value = ir.tensor(shape.const_value.numpy()[:5])
    with pytest.raises(RunError, match=f"Gemm {node.name}: onnxruntime"):
        list(trace_onnx(small.onnx, {"x": ort_value(small.args[0])}))


def test_a_value_that_is_written_to_later_is_yielded_as_it_was():
    class Residual(torch.nn.Module):
        def forward(self, x):
            hidden = x * 2
            hidden += x
            return hidden

    x = torch.ones(2, 3)
    program = torch.export.export(Residual(), (x,))
    values = dict(trace_program(program, [x]))
    assert torch.equal(values["mul"], 2 * x)
    assert torch.equal(values["add_"], 3 * x)
