from __future__ import annotations

import onnx_ir as ir
import pytest
import torch

from torchferry.comparer import compare
from torchferry.comparer.reference.reference import of_model, of_module, of_program
from torchferry.comparer.run.piece import Runner
from torchferry.converter import convert
from torchferry.errors import UsageError
from torchferry.exporter import to_onnx


def test_a_program_gives_only_the_values_asked_for(small):
    reference = of_program(small.program, small.args, {}, small.onnx.graph)
    found = dict(reference.values({"linear", "argmax"}))
    assert list(found) == ["linear", "argmax"]
    assert reference.origins["logits"].key == "linear_2"
    assert reference.program is small.program
    assert reference.chance.dependent() == frozenset()


def test_a_program_that_writes_in_place_is_compared_without(small):
    class InPlace(torch.nn.Module):
        def forward(self, x):
            y = x * 2
            y.add_(1)
            return y.relu_() + x

    x = torch.tensor([-3.0, 1.0])
    program = torch.export.export(InPlace(), (x,), strict=False)
    graph = convert(program).graph
    reference = of_program(program, (x,), {}, graph)
    values = dict(reference.values({origin.key for origin in reference.origins.values()}))
    assert len(reference.origins) == len(graph)
    by_name = {name: values[origin.key].tolist() for name, origin in reference.origins.items()}
    assert list(by_name.values()) == [[-6, 2], [-5, 3], [0, 3], [-3, 4]]


def test_modules_in_eager_mode_are_a_reference(small):
    reference = of_module(small.module, small.args, {}, small.onnx.graph)
    found = dict(reference.values({"blocks.0", "output:0", "output:1"}))
    expected = small.module(*small.args)
    torch.testing.assert_close(found["blocks.0"], small.module.blocks[0](*small.args))
    torch.testing.assert_close(found["output:0"], expected["logits"])
    torch.testing.assert_close(found["output:1"], expected["top"])
    assert reference.program is None


def test_another_onnx_model_is_a_reference(small):
    feeds = {"x": small.args[0]}
    reference = of_model(convert(small.program), feeds, small.onnx.graph, Runner())
    found = dict(reference.values({"logits"}))
    torch.testing.assert_close(found["logits"], small.module(*small.args)["logits"])


class Dropping(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.drop, self.last = (
            torch.nn.Linear(4, 4), torch.nn.Dropout(), torch.nn.Linear(4, 4)
        )  # fmt: skip

    def forward(self, x):
        y = self.first(x)
        return self.last(self.drop(y)), y


def dropping(model, training):
    """An ONNX model with a dropout, its nodes named as the TorchScript exporter does."""
    text = """<ir_version: 10, opset_import: ["" : 20]>
    main (float[3, 4] x) => (float[3, 4] out, float[3, 4] y) {
      y = Gemm<transB = 1>(x, w1, b1)
      t = Constant<value: tensor = bool {TRAINS}>()
      d = Dropout(y, , t)
      out = Gemm<transB = 1>(d, w2, b2)
    }"""
    onnx = ir.from_onnx_text(text.replace("TRAINS", str(int(training))))
    state = {
        name: ir.tensor(value.detach().numpy(), name=short)
        for short, (name, value) in zip(
            ("w1", "b1", "w2", "b2"), model.named_parameters(), strict=True
        )
    }
    names = ["/first/Gemm", "/drop/Constant", "/drop/Dropout", "/last/Gemm"]
    for node, name in zip(onnx.graph, names, strict=True):
        node.name = name
        for value in node.inputs:
            if value is not None and value.name[0] in "wb":
                value.const_value = next(t for t in state.values() if t.name == value.name)
                onnx.graph.register_initializer(value)
    return onnx


def test_what_a_dropout_draws_in_eager_mode_is_given_to_both_sides():
    model, x = Dropping(), torch.randn(3, 4)
    onnx = dropping(model, training=True)
    found = compare(model, onnx, (x,), against="eager")
    assert {row.origin: row.verdict for row in found.rows} == {
        "drop": "random", "output:0": "equal", "output:1": "equal"
    }  # fmt: skip
    assert found.ok
    last = list(onnx.graph)[-1]
    last.attributes["alpha"] = ir.AttrFloat32("alpha", 1.5)
    found = compare(model, onnx, (x,), against="eager")
    assert found.differing == ("out",)
    assert found.suspects == (last.name,)


def test_what_a_dropout_draws_and_the_file_does_not_is_a_constant_in_it():
    model, x = Dropping(), torch.randn(3, 4)
    onnx = convert(torch.export.export(model.eval(), (x,)))
    for against in ("eager", "program"):
        found = compare(model.train(), onnx, (x,), against=against)
        assert not found.ok
        assert (found.open, found.differing) == ((), ("output_0",))
        assert found.verdict.evidence.endswith("returns the same in every run")


def test_a_module_that_returns_something_else_is_refused():
    model, x = Dropping().eval(), torch.randn(3, 4)
    onnx = convert(torch.export.export(model, (x,)))
    onnx.graph.outputs.pop()
    assert compare(model, onnx, (x,), against="eager").ok  # the other is known by its name
    onnx.graph.outputs[0].name = "other"
    with pytest.raises(UsageError, match=r"returns 2 tensors and 0 numbers.*has 1 outputs"):
        compare(model, onnx, (x,), against="eager")


class Sized(torch.nn.Module):
    def forward(self, x):
        return x * 2, x.shape[0] + 1


@pytest.mark.parametrize("against", ["program", "eager"])
@pytest.mark.parametrize("again", [True, False])
def test_a_size_that_is_returned_is_compared(against, again):
    x = torch.rand(3, 2)
    shapes = ({0: torch.export.Dim.DYNAMIC},)
    program = to_onnx(Sized(), (x,), dynamic_shapes=shapes)
    onnx = program.model if again else program
    assert compare(Sized(), onnx, (x,), against=against).ok
    add = next(node for node in program.model.graph if node.op_type == "Add")
    add.replace_input_with(1, add.inputs[0])
    found = compare(Sized(), onnx, (x,), against=against)
    assert found.differing == ("output_1",)
    assert found.outputs["output_1"].abs == 2


class Turn(torch.nn.Module):
    def forward(self, x):
        return x.cos(), x.sin()


class Turned(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.turn, self.act = Turn(), torch.nn.Tanh()

    def forward(self, x):
        cos, sin = self.turn(x)
        return self.act(x * cos + x.flip(-1) * sin)


def test_a_module_with_two_tensors_is_not_compared_with_the_last_of_them():
    model, x = Turned().eval(), torch.randn(3, 4)
    onnx = convert(torch.export.export(model, (x,)))
    found = compare(model, onnx, (x,), against="eager")
    assert found.ok
    assert [row.origin for row in found.rows] == ["output:0"]
