import pytest
from rewriting import changes, keeps, parse

from torchferry.errors import RuleBroke
from torchferry.optimizer.driver import apply_rules
from torchferry.optimizer.rule import Rule, require
from torchferry.optimizer.tally import Tally

MS = "com.microsoft"


class Skip(Rule):
    """Relu(x + y), and the sum  →  Skip(x, y)"""

    def pattern(self, p, x, y, scale):
        total = p.Add(x, y)
        return p.Mul(p.Relu(total), scale), total

    def rewrite(self, b, x, y, scale):
        total = b.Sub(x, b.Neg(y))
        return b.Mul(b.Abs(total), scale), total


HEAD = "g (float[a] x, float[a] z, float[a] w) => (float[a] y, float[a] u) "


def test_a_sum_that_others_read():
    changes(
        Skip(),
        HEAD + "{ s = Add(x, z) e = Exp(s) r = Relu(s) y = Mul(r, w) u = Neg(e) }",
        HEAD + "{ n = Neg(z) s = Sub(x, n) b = Abs(s) y = Mul(b, w) e = Exp(s) u = Neg(e) }",
        sizes=(),
    )


def test_no_place_that_is_early_and_late_enough():
    keeps(
        Skip(),
        HEAD + "{ s = Add(x, z) e = Exp(s) r = Relu(s) y = Mul(r, e) u = Neg(e) }",
        "is made after what reads the result",
    )


def test_metadata_and_names():
    model = parse(HEAD + "{ s = Add(x, z) u = Neg(w) r = Relu(s) y = Mul(r, w) }")
    add, _, _, mul = model.graph
    add.metadata_props.update({"namespace": "inner", "pkg.torch.onnx.fx_node": "add"})
    mul.metadata_props["namespace"] = "outer"
    mul.name = "the_mul"
    apply_rules(model, [Skip()], Tally())
    new = [node for node in model.graph if "pkg.torchferry.rule" in node.metadata_props]
    assert len(new) == 4
    for node in new:
        assert node.metadata_props == {
            "namespace": "outer",
            "pkg.torch.onnx.fx_node": "add",
            "pkg.torchferry.rule": "Skip",
        }
        assert node.name.startswith("the_mul/Skip")
    assert [str(d) for d in new[0].outputs[0].shape] == ["a"]  # inferred
    assert new[-1].outputs[0].name == "y"


def test_what_a_rule_may_not_return():
    class Short(Skip):
        def rewrite(self, b, x):
            return x

    class Retyped(Rule):
        """Relu(x)  →  Cast(x)"""

        def pattern(self, p, x):
            return p.Relu(x)

        def rewrite(self, b, x):
            return b.Cast(x, to=11, like=doubles)

    model = parse(HEAD + "{ s = Add(x, z) u = Neg(w) r = Relu(s) y = Mul(r, w) }")
    doubles = parse("g (double[a] x) => (double[a] y) { y = Neg(x) }").graph.inputs[0]
    with pytest.raises(RuleBroke, match="Short returned 1 values for 2"):
        apply_rules(model, [Short()], Tally())
    with pytest.raises(RuleBroke, match="Retyped made DOUBLE of r, which is FLOAT"):
        apply_rules(model, [Retyped()], Tally())


def test_a_rewrite_that_finds_out_what_it_replaces():
    class Siblings(Rule):
        """all Negs of one value  →  one"""

        def pattern(self, p, x):
            return p.Neg(x, name="first")

        def check(self, x, first):
            others = [node for node in x.consumers() if node.op_type == "Neg"]
            require(len(others) > 1, "it is alone")

        def rewrite(self, b, x):
            one = b.Neg(x)
            return {node.outputs[0]: one for node in x.consumers() if node.op_type == "Neg"
                    and node is not b.nodes[0]}  # fmt: skip

    head = "g (float[a] x) => (float[a] y, float[a] u) "
    changes(
        Siblings(),
        head + "{ m = Neg(x) y = Exp(m) n = Neg(x) u = Sin(n) }",
        head + "{ m = Neg(x) y = Exp(m) u = Sin(m) }",
    )


def test_new_domains_are_declared():
    class Fused(Rule):
        """Exp(x)  →  com.example.Exp(x)"""

        def pattern(self, p, x):
            return p.Exp(x)

        def rewrite(self, b, x):
            return b.Exp(x, domain="com.example", version=3)

    model = parse("g (float[a] x) => (float[a] y) { y = Exp(x) }")
    apply_rules(model, [Fused()], Tally())
    assert model.opset_imports["com.example"] == 3
    assert [str(d) for d in model.graph.outputs[0].shape] == ["a"]
