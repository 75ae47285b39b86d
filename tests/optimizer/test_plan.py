import pytest
from rewriting import parse

from torchferry.errors import RuleBroke, UsageError
from torchferry.optimizer.plan import STAGES, known_rules, plan_of, rule_named, run_plan
from torchferry.optimizer.rule import Rule


def names(*args, **kwargs):
    return {name for stage in plan_of(*args, **kwargs) for name in stage.names}


class Own(Rule):
    """Exp(x)  →  Log(x)"""

    def pattern(self, p, x):
        return p.Exp(x)

    def rewrite(self, b, x):
        return b.Log(x)


def test_sets():
    default = names("default")
    assert {"Fold", "Cast", "MergeEqual"} <= default
    assert names("default+onnxruntime") - default >= {"Attention", "RmsNorm", "Rotary"}
    assert names(None) == names("") == names([]) == set()
    assert default == {name for name, group in known_rules().items() if group == "default"}


def test_what_does_not_pay_on_a_processor_is_left_out():
    everywhere, cpu, cuda = (
        names("onnxruntime", processor=where) for where in ("CPU,CUDA", "CPU", "CUDA")
    )
    assert "onnxscript" in cuda - cpu
    assert "Attention" in cpu - cuda
    assert everywhere == cpu & cuda


def test_rules_are_taken_out_and_put_in():
    default = names("default")
    assert default - names("default-Cast-ReshapeReshape") == {"Cast", "ReshapeReshape"}
    assert names("default-CastPattern") == default - {"Cast"}
    assert names("Cast+Identity") == names(["Cast", "Identity"]) == {"Cast", "Identity"}
    assert names("default+onnxruntime-onnxruntime") == default
    assert names(["Cast", Own()]) == {"Cast", "Own"}


def test_the_order_is_that_of_the_stages():
    order = [name for stage in STAGES for name in stage.names]
    chosen = [name for stage in plan_of("Identity+Fold+MergeEqual") for name in stage.names]
    assert chosen == sorted(chosen, key=order.index)


def test_folding_can_be_turned_off_or_narrowed():
    assert names("default", constant_folding=False) == names("default") - {"Fold"}
    plan = plan_of("default", constant_folding={"Neg"})
    (fold,) = (rule for stage in plan for rule in stage.rules if rule.name == "Fold")
    assert fold.op_types == {"Neg"}


def test_rules_that_do_not_pay_on_the_processor():
    class Gpu(Own):
        processors = frozenset({"CUDA"})

    assert names([Gpu()], processor="CUDA") == {"Gpu"}
    assert names([Gpu()], processor="CPU") == names([Gpu()], processor="CPU,CUDA") == set()


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ("defualt", "unknown patterns 'defualt': choose default"),
        ("default-RehapeReshape", "choose ReshapeReshape"),
        (["default", "Casst"], "choose .*Cast"),
    ],
)
def test_unknown_names_are_refused(wrong, said):
    with pytest.raises(UsageError, match=said):
        plan_of(wrong)


def test_one_rule_by_name():
    assert rule_named("CastPattern") == "Cast"
    with pytest.raises(UsageError, match="a set of rules"):
        rule_named("default")
    with pytest.raises(UsageError, match="MergeEqual has no pattern"):
        rule_named("MergeEqual")


def test_stages_are_run_until_nothing_changes():
    model = parse("g (float[a] x) => (float[a] y) { n = Neg(x) m = Neg(n) o = Neg(m) y = Neg(o) }")
    tally = run_plan(model, plan_of("default"))
    assert [node.op_type for node in model.graph] == ["Identity"]
    assert tally.applied["Neg"] == 2
    assert tally.stages[-1].applied == 0
    assert run_plan(model, plan_of("default")).applied == {}


def test_a_number_of_runs():
    text = "g (float[a] x) => (float[a] y) { n = Neg(x) m = Neg(n) y = Exp(m) }"
    model = parse(text)
    assert run_plan(model, plan_of("default"), max_iter=0).stages == []
    assert len(model.graph) == 3
    run_plan(model, plan_of("default"), max_iter=1)
    assert len(model.graph) == 1


def test_plans_that_never_end_are_an_error():
    class Back(Own):
        def pattern(self, p, x):
            return p.Log(x)

        def rewrite(self, b, x):
            return b.Exp(x)

    model = parse("g (float[a] x) => (float[a] y) { y = Exp(x) }")
    with pytest.raises(RuleBroke, match="without an end"):
        run_plan(model, plan_of([Own(), Back()]))
