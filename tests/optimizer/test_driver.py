import onnx_ir as ir
import pytest
from rewriting import changes, keeps, parse, same_numbers, structure

from torchferry.errors import RuleBroke
from torchferry.optimizer.driver import apply_rules, remove_dead
from torchferry.optimizer.rule import Rule
from torchferry.optimizer.tally import Tally


class Double(Rule):
    """x + x  →  x * 2"""

    def pattern(self, p, x):
        return p.Add(x, x)

    def rewrite(self, b, x):
        return b.Mul(x, 2)


class Silu(Rule):
    """x * Sigmoid(x)  →  x / (1 + Exp(-x))"""

    def pattern(self, p, x):
        return p.Mul(x, p.Sigmoid(x))

    def rewrite(self, b, x):
        return b.Div(x, b.Add(b.Exp(b.Neg(x)), 1))


def test_the_readers_of_what_changed_are_looked_at_again():
    class Chain(Rule):
        """Neg(Abs(x))  →  Abs(x)"""

        def pattern(self, p, x):
            return p.Abs(p.Neg(x))

        def rewrite(self, b, x):
            return b.Abs(x)

    g = "g (float[a] x) => (float[a] y) "
    changes(
        Chain(),
        g + "{ n = Neg(x) m = Neg(n) o = Neg(m) y = Abs(o) }",
        g + "{ y = Abs(x) }",
    )


def test_an_inner_value_that_others_need_stays():
    head = "g (float[a] x) => (float[a] y, float[a] s) "
    keeps(Silu(), head + "{ s = Sigmoid(x) y = Mul(x, s) }", "Sigmoid is an output of the graph")
    keeps(Silu(), head + "{ t = Sigmoid(x) y = Mul(x, t) s = Neg(t) }", "is used elsewhere")


def test_subgraphs_are_rewritten_with_values_from_around():
    text = """g (float[a] x, bool c) => (float[a] y) {
        s = Sigmoid(x)
        y = If (c) <
            then_branch = t () => (float[a] p) { d = Add(x, x) p = Mul(d, s) },
            else_branch = e () => (float[a] q) { z = Sigmoid(x) q = Mul(x, z) }
        > }"""
    model, tally = parse(text), Tally()
    assert apply_rules(model, [Double(), Silu()], tally) == 2
    assert dict(tally.applied) == {"Double": 1, "Silu": 1}
    same_numbers(parse(text), model)


def test_a_node_of_another_graph_is_not_matched():
    text = """g (float[a] x, bool c) => (float[a] y) {
        s = Sigmoid(x)
        y = If (c) <
            then_branch = t () => (float[a] p) { p = Mul(x, s) },
            else_branch = e () => (float[a] q) { q = Identity(x) }
        > }"""
    model = parse(text)
    assert apply_rules(model, [Silu()], Tally()) == 0


def test_local_functions_are_rewritten():
    model = ir.from_onnx_text("""<ir_version: 10, opset_import: ["" : 20, "own" : 1]>
        g (float[a] x) => (float[a] y) { y = own.twice(x) }
        <domain: "own", opset_import: ["" : 20]> twice (v) => (w) { w = Add(v, v) }""")
    assert apply_rules(model, [Double()], Tally()) == 1
    (function,) = model.functions.values()
    assert [node.op_type for node in function] == ["Constant", "Mul"]
    assert not model.graph.initializers


def test_rules_have_a_first_opset():
    text = "g (float[a] x) => (float[a] y) { y = Add(x, x) }"
    keeps(Double(), text, opset=12)


def test_rules_that_undo_one_another_end():
    class Turn(Rule):
        """x - y  →  -(y - x)"""

        def pattern(self, p, x, y):
            return p.Sub(x, y)

        def rewrite(self, b, x, y):
            return b.Neg(b.Sub(y, x))

    model = parse("g (float[a] x, float[a] z) => (float[a] y) { y = Sub(x, z) }")
    with pytest.raises(RuleBroke, match=r"Turn was applied 1\d\d times without an end"):
        apply_rules(model, [Turn()], Tally())


def test_dead_nodes_and_initializers_go():
    text = """g (float[a] x, bool c) => (float[a] y)
        <float one = {1.0}, float two = {2.0}, float three = {3.0}> {
        n = Neg(x) unused = Mul(n, one)
        gone = If (c) <
            then_branch = t () => (float[a] p) { p = Mul(x, two) },
            else_branch = e () => (float[a] q) { q = Mul(n, two) }
        >
        y = Mul(x, three) }"""
    model = parse(text)
    remove_dead(model)
    assert [node.op_type for node in model.graph] == ["Mul"]
    assert list(model.graph.initializers) == ["three"]


def test_declines_are_counted_and_explained():
    tally = Tally(explain="Silu")
    model = parse("g (float[a] x) => (float[a] y, float[a] s) { s = Sigmoid(x) y = Mul(x, s) }")
    before = structure(model)
    apply_rules(model, [Silu()], tally)
    reason = "the result of Sigmoid is an output of the graph"
    assert tally.declined == {"Silu": {reason: 1}}
    (miss,) = tally.nearest()
    assert (miss.matched, miss.reason) == (2, f"declined: {reason}")
    assert structure(model) == before
