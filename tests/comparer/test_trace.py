from __future__ import annotations

import onnx_ir as ir
import pytest
import torch

from torchferry.comparer.piece import ort_value
from torchferry.comparer.trace import (
    single_modules,
    trace_modules,
    trace_onnx,
    trace_program,
)
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


def test_a_size_as_an_input_is_refused():
    class Add(torch.nn.Module):
        def forward(self, x, n):
            return x + n

    program = torch.export.export(
        Add(), (torch.rand(2), 3), dynamic_shapes=(None, torch.export.Dim.DYNAMIC)
    )
    with pytest.raises(UsageError, match="input n of the program is no tensor"):
        list(trace_program(program, [torch.rand(2)]))


@pytest.mark.parametrize("budget", [1, 200, 2**26])
def test_modules_give_their_outputs_whatever_the_budget(small, budget):
    wanted = {"blocks.0.norm", "blocks.1", "head", ""}
    found = dict(trace_modules(small.module, small.args, {}, wanted, budget=budget))
    assert list(found) == ["blocks.0.norm", "blocks.1", "head", "", ":1"]
    x = small.args[0]
    torch.testing.assert_close(found["blocks.0.norm"], small.module.blocks[0].norm(x))
    torch.testing.assert_close(found[""], small.module(x)["logits"])
    torch.testing.assert_close(found[":1"], small.module(x)["top"])


def test_hooks_are_gone_afterwards_and_in_place_writes_do_not_reach_what_was_seen():
    model = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.ReLU(inplace=True))
    x = torch.randn(5, 2)
    found = dict(trace_modules(model, (x,), {}, {"0", "1"}))
    torch.testing.assert_close(found["0"], model[0](x))
    torch.testing.assert_close(found["1"], model[0](x).relu())
    assert not any(module._forward_hooks for module in model.modules())


def test_of_several_calls_the_last_counts():
    class Twice(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.act = torch.nn.ReLU()

        def forward(self, x):
            return self.act(self.act(x) - 1)

    found = dict(trace_modules(Twice(), (torch.tensor([3.0, 0.5]),), {}, {"act"}))
    assert found["act"].tolist() == [2, 0]


def test_a_failing_model_keeps_no_hooks():
    model = torch.nn.Sequential(torch.nn.Linear(2, 2))
    with pytest.raises(RuntimeError):
        list(trace_modules(model, (torch.rand(3, 3),), {}, {"0"}))
    assert not model[0]._forward_hooks


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


def test_modules_that_return_one_tensor(small):
    paths = {path for path, _ in small.module.named_modules()}
    assert single_modules(small.module, small.args, {}) == paths - {"", "blocks"}


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
