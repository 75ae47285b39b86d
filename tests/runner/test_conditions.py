import pytest

from torchferry.errors import UsageError
from torchferry.runner.conditions import check_conditions
from torchferry.values.flatten import flatten
from torchferry.values.signature import Signature


def conditional(*conditions):
    return Signature((), (), {}, flatten(())[1], (), conditions=conditions)


def test_conditions_that_do_not_hold_are_refused():
    signature = conditional(("n0 % 4 == 2", ("batch",), "m.py:7: if batch % 4 == 2:"))
    check_conditions(signature, {"batch": 6})
    with pytest.raises(UsageError, match=r"sizes with batch % 4 == 2, and batch is 5: .*m.py:7"):
        check_conditions(signature, {"batch": 5})


def test_conditions_of_sizes_that_no_input_tells_are_refused():
    with pytest.raises(UsageError, match="its inputs do not tell unknown"):
        check_conditions(conditional(("n0 > 1", ("unknown",))), {"batch": 5})


def test_a_condition_on_a_size_that_only_an_expression_names_is_checked():
    signature = conditional(("n0 > 8", ("past + sequence",)))
    check_conditions(signature, {"past + sequence": 9})
    with pytest.raises(
        UsageError, match=r"with \(past \+ sequence\) > 8, and past \+ sequence is 8"
    ):
        check_conditions(signature, {"past + sequence": 8})


def test_a_condition_at_size_1_is_refused_like_others():
    with pytest.raises(UsageError, match="with rows > 1, and rows is 1"):
        check_conditions(conditional(("n0 > 1", ("rows",))), {"rows": 1})


def test_a_condition_that_cannot_be_read_is_refused():
    with pytest.raises(UsageError, match="signature cannot be read"):
        check_conditions(conditional(("import os", ("n",))), {"n": 1})
