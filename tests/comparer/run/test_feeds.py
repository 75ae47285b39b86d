from __future__ import annotations

import json

import onnx_ir as ir
import pytest
import torch

import torchferry
from torchferry.comparer import compare
from torchferry.comparer.run.feeds import draw_feeds, model_feeds, program_feeds, unmet_by_model
from torchferry.converter import convert
from torchferry.errors import UsageError
from torchferry.values.signature import SIGNATURE_KEY


class Two(torch.nn.Module):
    def forward(self, a, b, scale=2.0):
        return a * scale + b


@pytest.fixture
def program():
    return torch.export.export(Two(), (torch.rand(2),), {"b": torch.rand(2)})


def test_arguments_may_be_given_by_position_or_name(program):
    a, b = torch.ones(2), torch.zeros(2)
    for args, kwargs in [((a, b), {}), ((a,), {"b": b}), ((), {"b": b, "a": a})]:
        assert [t.tolist() for t in program_feeds(program, args, kwargs)] == [[1, 1], [0, 0]]
        found = model_feeds(convert(program), args, kwargs)
        assert {name: t.tolist() for name, t in found.items()} == {"a": [1, 1], "b": [0, 0]}


def test_what_does_not_fit_is_refused(program):
    with pytest.raises(UsageError, match="input a has shape"):
        program_feeds(program, (torch.ones(3), torch.zeros(2)), {})
    with pytest.raises(UsageError, match="no value for input b"):
        model_feeds(convert(program), (torch.ones(2),), {})


class Turned(torch.nn.Module):
    def forward(self, z, n):
        return z * n


def test_complex_tensors_and_numbers_are_given_in_the_form_each_side_takes():
    z = torch.tensor([1.0 + 2.0j])
    program = torch.export.export(
        Turned(), (z, 3), dynamic_shapes=(None, torch.export.Dim.DYNAMIC)
    )
    one, number = program_feeds(program, (z, 5), {})
    assert torch.equal(one, z)
    assert number.item() == 5
    found = model_feeds(convert(program), (z, 5), {})
    assert found["z"].tolist() == [[1.0, 2.0]]
    assert found["n"].item() == 5
    found = model_feeds(convert(program), (), {"z": z, "n": torch.tensor(5)})
    assert found["z"].tolist() == [[1.0, 2.0]]


FOREIGN = """<ir_version: 10, opset_import: ["" : 20]>
main (float[batch, 2] a, int64[batch, "past+2"] ids, bool[past] mask) => (float[batch, 2] y)
{ y = Relu(a) }"""


@pytest.fixture
def foreign() -> ir.Model:
    return ir.from_onnx_text(FOREIGN)


def given():
    return torch.ones(1, 2), torch.ones(1, 3, dtype=torch.int64), torch.ones(1, dtype=torch.bool)


def test_inputs_of_a_foreign_file_are_found_by_name_or_in_order(foreign):
    a, ids, mask = given()
    assert model_feeds(foreign, (), {"mask": mask, "ids": ids, "a": a})["ids"] is ids
    found = model_feeds(foreign, ([a], ids), {"other": mask})
    assert (found["a"], found["ids"], found["mask"]) == (a, ids, mask)
    assert list(model_feeds(foreign, (), {"a": a, "ids": ids, "mask": mask, "n": 3})) == [
        "a", "ids", "mask",
    ]  # fmt: skip


def test_what_has_other_names_is_taken_in_order(foreign):
    a, ids, mask = given()
    found = model_feeds(foreign, (), {"mask": mask, "first": a, "second": ids})
    assert (found["a"], found["ids"], found["mask"]) == (a, ids, mask)
    with pytest.raises(UsageError, match="takes 3 inputs"):
        model_feeds(foreign, (), {"mask": mask, "first": a})


def test_a_foreign_file_that_takes_something_else_is_refused(foreign):
    with pytest.raises(UsageError, match=r"takes 3 inputs \(a, ids, mask\).*1 inputs \(x\)"):
        model_feeds(foreign, (), {"x": torch.ones(1)})


def test_drawn_inputs_fit_the_sizes(foreign):
    found = draw_feeds(foreign)
    assert {name: (t.dtype, tuple(t.shape)) for name, t in found.items()} == {
        "a": (torch.float32, (2, 2)), "ids": (torch.int64, (2, 5)), "mask": (torch.bool, (3,)),
    }  # fmt: skip
    assert set(found["ids"].flatten().tolist()) <= {0, 1}
    assert torch.equal(draw_feeds(foreign)["a"], found["a"])


def test_an_input_without_a_shape_cannot_be_drawn(foreign):
    foreign.graph.inputs[0].shape = None
    with pytest.raises(UsageError, match="input a has no shape or type: give inputs"):
        draw_feeds(foreign)


def test_inputs_with_a_default_need_no_value(foreign):
    value = foreign.graph.inputs[2]
    value.const_value = ir.tensor([True], name="mask")
    foreign.graph.register_initializer(value)
    assert list(draw_feeds(foreign)) == ["a", "ids"]


@pytest.mark.parametrize(
    "tensor", [torch.ones(1, 3), torch.ones(1, 2).double(), torch.ones(2)], ids=str
)
def test_a_tensor_that_does_not_fit_the_file_is_refused(foreign, tensor):
    _, ids, mask = given()
    with pytest.raises(UsageError, match=r"input a .* is torch\.float32 .*given is"):
        model_feeds(foreign, (), {"a": tensor, "ids": ids, "mask": mask})


def test_a_file_of_another_precision_says_how_to_cast():
    x, y = torch.rand(2, 3), torch.rand(2, 3)
    model = convert(torch.export.export(Plus(), (x.half(), y.half())))
    with pytest.raises(UsageError, match=r"is torch.float16, .* torch.float32.*--dtype fp16"):
        model_feeds(model, (x, y), {})
    with pytest.raises(UsageError, match=r"input y is torch.float32, but"):
        model_feeds(model, (x.half(), y), {}, ("x", "y"))


class Plus(torch.nn.Module):
    def forward(self, x, y):
        return x + y


class Parity(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.sum(-1) if x.shape[-1] % 2 == 0 else x.mean(-1)


@pytest.fixture(scope="module")
def limited():
    """A model that is right for even sizes only, and says so."""
    sets = [((torch.randn(b, t),), {}) for b, t in ((2, 16), (3, 24))]
    return torchferry.export(Parity(), sets, check=False, progress=False)


ODD = (torch.ones(1, 9),)
REFERENCES = {
    "a module": lambda made: (Parity(), made.model, "program", False),
    "a module in eager mode": lambda made: (Parity(), made.model, "eager", False),
    "what export gave": lambda made: (Parity(), made, "program", False),
    "its program": lambda made: (made.program, made.model, "program", True),
    "its file": lambda made: (made.model, made.model, "program", True),
}


@pytest.mark.parametrize("name", REFERENCES)
def test_sizes_outside_the_conditions_are_compared_and_named(name, limited):
    """The comparer finds out why a model is wrong; it does not refuse to look."""
    reference, onnx, against, agrees = REFERENCES[name](limited)
    found = compare(reference, onnx, ODD, against=against)
    assert found.ok is agrees, str(found)
    assert any("% 2 == 0, which these inputs are not" in note for note in found.notes)
    even = compare(reference, onnx, (torch.ones(1, 8),), against=against)
    assert even.ok, str(even)
    assert not any("% 2" in note for note in even.notes)


@pytest.mark.parametrize(
    ("condition", "says"),
    [
        (["n0 > 4", ["n"]], "n > 4"),
        (["n0 * 2 == n1", ["n", "2*n"]], ""),
        (["__import__('os')", ["n"]], "__import__('os') of n"),
        (["n0 ==", ["n"]], "n0 == of n"),
        (["n0 == 3", ["elsewhere"]], ""),
    ],
)
def test_conditions_of_a_file(condition, says):
    signature = {
        "parameters": ["x"], "inputs": [["x", ["x"]]], "constants": {}, "outputs": None,
        "leaves": [["y"]], "numbers": [], "required": [], "conditions": [condition],
    }  # fmt: skip
    model = ir.from_onnx_text(
        '<ir_version: 10, opset_import: ["" : 20]> g (float[n, 3] x) => (float[n, 3] y) '
        "{ y = Neg(x) }"
    )
    model.metadata_props[SIGNATURE_KEY] = json.dumps(signature)
    assert unmet_by_model(model, {"x": torch.ones(2, 3)}) == ([says] if says else [])
