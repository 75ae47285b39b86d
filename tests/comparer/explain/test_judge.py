from __future__ import annotations

import onnx_ir as ir
import pytest
import torch

from torchferry.comparer import compare
from torchferry.comparer.explain.judge import Judge
from torchferry.comparer.run.piece import Runner
from torchferry.comparer.setting import set_up
from torchferry.converter import convert
from torchferry.judge.tolerance import Tolerance
from torchferry.values.difference import max_diff


def allows(expected, difference):
    return Tolerance.inside(torch.float32).allows(difference, expected)


def test_verdicts_go_by_the_numbers(small):
    (setting,), _ = set_up(small.program, small.onnx, None, against="program", runner=Runner())
    judge = Judge(setting, allows)
    held = {"linear": torch.ones(2)}

    def verdict(got):
        return judge("linear", held, got, max_diff(held["linear"], got))[0]

    assert verdict(torch.ones(2) + 1e-6) == "equal"
    assert verdict(torch.ones(2) + 0.1) == "differs"
    assert verdict(torch.ones(3)) == verdict(torch.ones(2).double()) == "differs"
    assert judge("linear", held, None, max_diff(1, 2))[0] == "failed"
    assert judge.needs("linear") == ("linear",)
    assert judge.needs("argmax") == ("argmax", "add_1")
    assert judge.shared == {"top"}


class Sorts(torch.nn.Module):
    def forward(self, x):
        numbers, places = x.sort(-1)
        return numbers, (places * 2).sum(-1), places


@pytest.mark.parametrize("feed", ["own", "torch"])
def test_places_of_equal_numbers_are_no_divergence(feed):
    x = torch.tensor([[1.0, 0.0, 1.0, 0.0, 1.0] * 8])
    program = torch.export.export(Sorts(), (x,))
    assert compare(program, convert(program), feed=feed).ok


class Chooses(torch.nn.Module):
    """Its experts are chosen by scores that are equal up to rounding."""

    def __init__(self, scores):
        super().__init__()
        self.scores = torch.nn.Parameter(scores)
        self.experts = torch.nn.Parameter(torch.randn(4, 3))

    def forward(self, x):
        best = (self.scores + 0 * x.sum()).argmax(-1)
        return self.experts[best] * 2, best


@pytest.mark.parametrize("feed", ["own", "torch"])
@pytest.mark.parametrize("shift", [0.0, 1e-7])
def test_numbers_that_are_almost_equal_may_change_places(feed, shift):
    module, x = Chooses(torch.tensor([0.1, 0.7 + shift, 0.3, 0.7])), torch.ones(2)
    program = torch.export.export(module, (x,))
    model = convert(program)
    other = ir.Value(name="other", const_value=ir.tensor([0.1, 0.6999999, 0.3, 0.7000001]))
    other.const_value = ir.tensor(other.const_value.numpy().astype("f4"))
    other.type, other.shape = ir.TensorType(ir.DataType.FLOAT), ir.Shape([4])
    model.graph.register_initializer(other)
    scores = model.graph.initializers["scores"]
    for user, index in tuple(scores.uses()):
        user.replace_input_with(index, other)
    found = compare(program, model, feed=feed)
    assert found.ok
    notes = [row.note for row in found.rows if row.verdict == "random"]
    assert [note[:13] for note in notes] == ["equal numbers"] * (feed == "own")
    other.const_value = ir.tensor(other.const_value.numpy()[::-1].copy())
    found = compare(program, model, feed=feed)
    assert not found.ok


def test_a_fault_after_equal_numbers_is_found():
    x = torch.ones(2)
    program = torch.export.export(Chooses(torch.tensor([0.1, 0.7, 0.3, 0.7])), (x,))
    model = convert(program)
    node = next(node for node in model.graph if node.outputs[0].name == "output_0")
    two = next(value for value in node.inputs if value.const_value is not None)
    two.const_value = ir.tensor(two.const_value.numpy() * 1.5)
    found = compare(program, model)
    assert found.differing == ("output_0",)
    assert found.suspects == (node.name,)


@pytest.mark.parametrize("feed", ["own", "torch"])
@pytest.mark.parametrize("largest", [True, False])
def test_what_topk_leaves_unsorted_may_stand_in_any_order(feed, largest):
    class Top(torch.nn.Module):
        def forward(self, x):
            numbers, places = x.topk(5, largest=largest, sorted=False)
            return numbers.cumsum(-1), places.cumsum(-1), numbers, places

    x = torch.rand(4, 40, generator=torch.Generator().manual_seed(0))
    program = torch.export.export(Top(), (x,))
    model = convert(program)
    assert compare(program, model, feed=feed).ok
    top = next(node for node in model.graph if node.op_type == "TopK")
    top.attributes["largest"] = ir.AttrInt64("largest", int(not largest))
    found = compare(program, model, feed=feed)
    assert found.suspects[-1] == found.first.node == top.name


@pytest.mark.parametrize("feed", ["own", "torch"])
def test_memory_that_is_not_set_is_no_divergence(feed):
    class Empty(torch.nn.Module):
        def forward(self, x):
            y = torch.ops.aten.new_empty.default(x, [3])
            return torch.where(x > 1e9, y, x) * 2

    x = torch.rand(3)
    program = torch.export.export(Empty(), (x,))
    assert compare(program, convert(program), feed=feed).ok


@pytest.mark.parametrize("sorted_", [0, 1])
def test_places_are_judged_between_two_onnx_models_too(sorted_):
    text = f"""<ir_version: 10, opset_import: ["" : 20]>
    main (float[6] x) => (float[3] y, float[3] z) {{
      k = Constant<value_ints = [3]>()
      v, i = TopK<sorted = {sorted_}>(x, k)
      f = Cast<to = 1>(i)
      y = Mul(f, f)
      z = Exp(v) }}"""
    one, other = ir.from_onnx_text(text), ir.from_onnx_text(text)
    top = list(other.graph)[1]
    x = torch.tensor([0.0, 3.0, 3.0, 3.0, 3.0, 9.0])
    found = compare(one, other, {"x": x})
    assert found.ok
    fixed = ir.Value(name="places", const_value=ir.tensor([5, 4, 2]))
    other.graph.register_initializer(fixed)
    take = ir.node("Identity", [fixed], name="take")
    for user, index in tuple(top.outputs[1].uses()):
        user.replace_input_with(index, take.outputs[0])
    top.outputs[1].name, take.outputs[0].name = "old", "i"
    other.graph.insert_after(top, take)
    found = compare(one, other, {"x": x})
    assert found.ok
    assert next(row.verdict for row in found.rows if row.name == "i") == "random"
    fixed.const_value = ir.tensor([5, 4, 0])
    assert compare(one, other, {"x": x}).first.name == "i"


class Best(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.act = torch.nn.ReLU()

    def forward(self, x):
        numbers, places = self.act(x).topk(4)
        return numbers, places, places * 2


@pytest.mark.parametrize("feed", ["own", "torch"])
def test_in_eager_mode_places_are_judged_by_the_numbers_of_the_onnx_model(feed):
    x = torch.tensor([[1.0, 0.0, 1.0, 0.0, 1.0] * 8, [-1.0] * 40])
    model = convert(torch.export.export(Best(), (x,)))
    found = compare(Best(), model, (x,), against="eager", feed=feed)
    assert found.ok
    assert "random" in {row.verdict for row in found.rows}
    top = next(node for node in model.graph if node.op_type == "TopK")
    top.attributes["largest"] = ir.AttrInt64("largest", 0)
    assert not compare(Best(), model, (x,), against="eager", feed=feed).ok


def test_choices_inside_a_module_are_told():
    class Inside(torch.nn.Module):
        def forward(self, x):
            return x.topk(4).indices.cumsum(-1)

    x = torch.tensor([1.0, 0.0, 1.0, 0.0, 1.0] * 8)
    model = convert(torch.export.export(Inside(), (x,)))
    assert compare(Inside(), model, (x,)).ok
    found = compare(Inside(), model, (x,), against="eager")
    assert not found.ok
    assert "compare with the captured program" in found.notes[-1]


class Draws(torch.nn.Module):
    def forward(self, x):
        kept = torch.bernoulli(torch.full_like(x, 0.8))
        return torch.rand_like(x) + x, kept * x


@pytest.mark.parametrize("feed", ["own", "torch"])
@pytest.mark.parametrize("wrong", ["range", "probability", None])
def test_what_is_drawn_from_another_distribution_differs(feed, wrong):
    torch.manual_seed(0)
    program = torch.export.export(Draws(), (torch.randn(20, 10),))
    model = convert(program)
    if wrong == "range":
        node = [node for node in model.graph if node.op_type == "RandomUniformLike"][-1]
        node.attributes["high"] = ir.AttrFloat32("high", 3.0)
    elif wrong:
        node = next(node for node in model.graph if node.op_type == "Less")
        node.op_type = "Greater"
    found = compare(program, model, feed=feed)
    assert found.ok == (wrong is None)
    assert [row.verdict for row in found.rows].count("random") == (2 if wrong is None else 1)
    if wrong:
        assert "not from the distribution" in found.first.note
        assert node.name in found.suspects


def test_a_draw_of_what_cannot_be_compared_says_nothing():
    class Twice(torch.nn.Module):
        def forward(self, x):
            whole = x + 9 * torch.randn(1)
            return torch.nn.functional.dropout(whole, 0.1, training=True)

    torch.manual_seed(0)
    program = torch.export.export(Twice(), (torch.ones(200),))
    text = """<ir_version: 10, opset_import: ["" : 20]>
    main (float[200] x) => (float[200] y) {
      r = RandomNormal<shape = [1]>()
      ratio = Constant<value_float = 0.1>()
      train = Constant<value = bool {1}>()
      w = Add(x, r)
      y = Dropout(w, ratio, train) }"""
    found = compare(program, ir.from_onnx_text(text))
    assert [row.verdict for row in found.rows] == ["random"]
