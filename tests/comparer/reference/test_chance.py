from __future__ import annotations

import math

import onnx_ir as ir
import pytest
import torch

from torchferry.comparer.reference.chance import Unordered, chance_of_model, chance_of_program
from torchferry.judge.choices import Places

aten = torch.ops.aten


def of(module, *args):
    return chance_of_program(torch.export.export(module, args, strict=False))


# What is random --------------------------------------------------------------------------------


class Noisy(torch.nn.Module):
    def forward(self, x):
        return (torch.randn_like(x) + 1) * 2, x * 2


def test_values_that_depend_on_random_numbers_are_known():
    chance = of(Noisy(), torch.rand(3))
    assert chance.drawn == {"randn_like"}
    assert chance.dependent() == {"randn_like", "add", "mul"}
    assert chance.dependent({"randn_like"}) == {"randn_like"}
    assert chance.dependent({"add"}) == {"randn_like", "add"}
    assert chance.dependent({"randn_like"}, {"mul_1"}) == {"randn_like", "mul_1"}


def test_dropout_that_does_nothing_is_not_random():
    layers = torch.nn.Sequential(torch.nn.Dropout(0.5), torch.nn.Dropout(0.0))
    assert not of(layers.eval(), torch.rand(3)).drawn
    assert not of(layers[1:].train(), torch.rand(3)).drawn
    attention = torch.nn.MultiheadAttention(4, 2, batch_first=True).eval()
    x = torch.rand(1, 3, 4)
    assert not of(attention, x, x, x).drawn


def test_items_of_what_is_drawn_are_drawn():
    class Native(torch.nn.Module):
        def forward(self, x):
            y, mask = aten.native_dropout(x, 0.5, True)
            return y, mask

    drawn = of(Native(), torch.rand(3)).drawn
    assert drawn >= {"native_dropout:0", "native_dropout:1", "getitem", "getitem_1"}


def test_bounds_are_known_of_what_is_drawn_element_by_element():
    class Many(torch.nn.Module):
        def forward(self, x):
            y, mask = aten.native_dropout(x, 0.5, True)
            nothing = torch.nn.functional.dropout(x, 0.0, training=True)
            whole = torch.feature_dropout(x[None], 0.5, True)
            return y, mask, nothing, whole, torch.rand_like(x), torch.randperm(9), x.bernoulli()

    bounds = of(Many(), torch.rand(3, 2)).bounds
    free = {"native_dropout", "native_dropout:0", "getitem"}
    assert {name for name, ends in bounds.items() if ends == (-math.inf, math.inf)} == free
    unit = {name for name, ends in bounds.items() if ends == (0, 1)}
    assert unit == {"rand_like", "rand_like:0", "bernoulli", "bernoulli:0"}


def test_a_branch_that_draws_is_random():
    class Branch(torch.nn.Module):
        def forward(self, x):
            return torch.cond(x.sum() > 0, torch.rand_like, torch.neg, (x,))

    assert "cond" in of(Branch(), torch.rand(3)).drawn


@pytest.mark.parametrize("op_type", ["RandomUniformLike", "RandomNormalLike", "Bernoulli"])
def test_random_onnx_operators_are_known(op_type):
    chance = chance_of_model(onnx(f"r = {op_type}(x)\n y = Add(r, x)\n z = Neg(x)"))
    assert chance.drawn == {"r"}
    assert chance.dependent() == {"r", "y"}


@pytest.mark.parametrize(("mode", "random"), [("t", True), ("f", False), ("", False)])
def test_an_onnx_dropout_is_random_in_training(mode, random):
    text = """t = Constant<value: tensor = bool {1}>()
    f = Constant<value: tensor = bool {0}>()
    y = Dropout(x, , MODE)
    z = Neg(y)"""
    model = onnx(text.replace(", , MODE", f", , {mode}" if mode else ""))
    assert ("z" in chance_of_model(model).dependent()) == (random or mode == "f")


def onnx(text):
    return ir.from_onnx_text(
        f"""<ir_version: 10, opset_import: ["" : 20]>
    main (float[N] x) => (float[N] y, float[N] z) {{ {text} }}"""
    )


def test_subgraphs_and_functions_are_looked_into():
    text = """<ir_version: 10, opset_import: ["" : 20, "own" : 1]>
    main (float[2] x, bool c) => (float[2] y, float[2] z) {
      y = If(c) <then_branch = t () => (float[2] a) { a = RandomUniformLike(x) },
                 else_branch = e () => (float[2] b) { b = Neg(x) }>
      z = own.noise(x)
    }
    <domain: "own", opset_import: ["" : 20]>
    noise (x) => (y) { y = RandomNormalLike(x) }"""
    assert chance_of_model(ir.from_onnx_text(text)).drawn == {"y", "z"}


def test_memory_that_is_not_set_is_known():
    class Empty(torch.nn.Module):
        def forward(self, x):
            return torch.where(x > 9, torch.empty_like(x), x)

    assert of(Empty(), torch.rand(3)).unset == {"empty_like"}


# Places ----------------------------------------------------------------------------------------


class Finds(torch.nn.Module):
    def forward(self, x):
        best = x.argmax(), x.argmin(1, keepdim=True), x.max(0).indices
        return *best, x.sort(stable=True, dim=-1), x.topk(2, sorted=False)


def test_what_tells_places_is_known():
    chance = of(Finds(), torch.rand(3, 4))
    assert chance.places["argmax"] == Places("x", None, kept=False)
    assert chance.places["argmin"] == Places("x", 1, kept=True)
    assert chance.places["max_1:1"] == Places("x", 0, kept=False)
    assert chance.places["sort:1"] == Places("x", -1)
    assert chance.places["topk:1"] == Places("x", -1, ordered=False)
    getitems = [name for name in chance.places if name.startswith("getitem")]
    assert len(getitems) == 3
    (free,) = chance.unordered
    assert free.dim == -1
    assert "topk:0" in free.numbers
    assert "topk:1" in free.places


def test_what_tells_places_in_an_onnx_model_is_known():
    model = onnx("""k = Constant<value_ints = [2]>()
    v, i = TopK<sorted = 0, axis = 0>(x, k)
    a = ArgMax<keepdims = 0>(x)
    c = Cast<to = 1>(a)
    y = Add(x, c)
    w = Cast<to = 1>(i)
    z = Add(v, w)""")
    chance = chance_of_model(model)
    assert chance.places["i"] == Places("x", 0, ordered=False)
    assert chance.places["a"] == Places("x", 0, kept=False)
    assert chance.unordered == (Unordered(0, frozenset({"v"}), frozenset({"i"})),)


def test_numbers_and_their_places_are_one_choice():
    both = Unordered(0, frozenset({"v", "w"}), frozenset({"i"}))
    assert both.pairs({"w", "i"})
    assert not both.pairs({"v"})
    assert not both.pairs({"i"})
    assert Unordered(0, frozenset({"v"}), frozenset()).pairs({"v"})
