import pytest

from torchferry.errors import FerryError, RuleBroke
from torchferry.optimizer.plan import STAGES
from torchferry.optimizer.rule import Declined, Rule, require


class QuickGelu(Rule):
    """x * Sigmoid(x)  →  QuickGelu(x)

    More about it.
    """

    def pattern(self, p, x):
        return p.Mul(x, p.Sigmoid(x, name="gate"))

    def check(self, gate):
        require(gate, "no gate")

    def rewrite(self, b, x):
        return (b, x)


def test_a_rule_describes_itself():
    rule = QuickGelu()
    assert (rule.name, rule.arrow) == ("QuickGelu", "x * Sigmoid(x)  →  QuickGelu(x)")
    assert (len(rule.outputs), len(rule.roots), rule.depth) == (1, 1, 2)


def test_methods_get_what_they_name():
    rule = QuickGelu()
    assert rule.rewritten("block", {"x": 1, "gate": 2}) == ("block", 1)
    rule.checked({"x": 1, "gate": 2})
    with pytest.raises(Declined, match="no gate"):
        rule.checked({"x": 1})


def test_what_is_missing_is_said():
    with pytest.raises(NotImplementedError, match="Rule has no pattern"):
        _ = Rule().outputs
    with pytest.raises(NotImplementedError, match="Rule has no rewrite"):
        Rule().rewrite()


def test_a_broken_rule_is_an_error_of_ours():
    error = RuleBroke("it broke", rule="QuickGelu")
    assert isinstance(error, FerryError)
    assert error.rule == "QuickGelu"


def test_every_rule_has_an_arrow_and_a_name_of_its_own():
    rules = [rule for stage in STAGES for rule in stage.rules]
    assert [rule.name for rule in rules if "→" not in rule.arrow] == []
    assert len({rule.name for rule in rules}) == len(rules)
