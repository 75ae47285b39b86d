import pytest
from rewriting import parse

from torchferry.errors import RuleBroke, UsageError
from torchferry.optimizer import OptimizationOptions
from torchferry.optimizer.plan import Stage, run_plan
from torchferry.optimizer.rule import Rule
from torchferry.optimizer.verifier import verifier


class Wrong(Rule):
    """Exp(x)  →  a node without an input"""

    def pattern(self, p, x):
        return p.Exp(x)

    def rewrite(self, b, x):
        return b.Relu()


def test_the_rule_at_fault_is_named():
    model = parse("g (float[a] x) => (float[a] y) { y = Exp(x) }")
    with pytest.raises(RuleBroke, match=r"Wrong broke the model \(Exp/Wrong\)") as caught:
        OptimizationOptions([Wrong()], verifies=True).apply(model)
    assert caught.value.rule == "Wrong"


def test_good_rules_pass():
    model = parse("g (float[a] x) => (float[a] y) { t = Identity(x) y = Exp(t) }")
    OptimizationOptions("default", verifies=True).apply(model)
    assert len(model.graph) == 1


def test_no_rule_is_blamed_for_what_was_wrong_before():
    model = parse("g (float[a] x) => (float[a] y) { y = Exp(x) }")
    model.graph[0].op_type = "Expp"
    with pytest.raises(UsageError, match="invalid before anything is rewritten"):
        verifier(model)


def test_large_weights_are_left_where_they_are():
    text = "g (float[a,999] x) => (float[a,999] y) { s = Constant<value_ints=[999]>() "
    model = parse(text + "w = ConstantOfShape(s) y = Add(x, w) }")
    OptimizationOptions("default", verifies=True).apply(model)
    assert [value.shape.numpy() for value in model.graph.initializers.values()] == [(999,)]
    assert [value.name for value in model.graph.inputs] == ["x"]


def test_operators_that_onnxruntime_keeps_in_onnxs_domain_are_let_through():
    text = "g (float[a,3] x, float[3] w) => (float[a,3] y) { y = SimplifiedLayerNormalization"
    model = parse(text + "<axis = -1>(x, w) }")
    OptimizationOptions("default", verifies=True).apply(model)
    assert model.graph[0].domain == ""


def test_a_stage_that_breaks_the_model_is_named(monkeypatch):
    def spoil(model):
        model.graph[0].op_type = "Expp"
        return 1

    model = parse("g (float[a] x) => (float[a] y) { y = Exp(x) }")
    with pytest.raises(RuleBroke, match="Spoil broke the model") as caught:
        run_plan(model, [Stage("Spoil", "given", act=spoil)], verify=verifier(model))
    assert caught.value.rule == "Spoil"
