from __future__ import annotations

from dataclasses import replace

import pytest

from torchferry.dims import Condition
from torchferry.exporter.verify.limits import Limits, find_limits
from torchferry.exporter.verify.verify import Check, Compared
from torchferry.judge import Kind, Verdict
from torchferry.values import Discrepancy
from torchferry.values.flatten import flatten
from torchferry.values.signature import Signature

EVEN = Condition("n0 % 2 == 0", ("width",), "m.py:3: if width % 2:")
SMALL = Condition("n0 <= 7", ("batch",))
SEVERAL = Condition("n0 > 1", ("batch",))


def at(kind: Kind | None, batch: int, width: int, **more: str) -> Check:
    found = None if kind is None else Verdict(kind, Discrepancy(abs=2.0, rel=0.5))
    outputs = () if found is None else (Compared("y", found),)
    return Check({"batch": batch, "width": width}, made=True, outputs=outputs, **more)


RIGHT = (at("equal", 2, 4), at("equal", 3, 8))


def test_a_condition_that_makes_no_difference_is_dropped() -> None:
    assert find_limits([SEVERAL], [*RIGHT, at("equal", 1, 4)]) == Limits()
    assert find_limits([SEVERAL], [*RIGHT, at("differs", 1, 4)]).kept == (SEVERAL,)


def test_of_one_that_many_sizes_break_a_few_prove_nothing() -> None:
    found = find_limits([EVEN, SMALL], [*RIGHT, at("equal", 2, 5), at("equal", 9, 4)])
    assert found == Limits((EVEN, SMALL), (EVEN, SMALL))


def test_what_an_operator_chooses_computes_the_same() -> None:
    chosen = replace(EVEN, choice=True)
    assert find_limits([chosen], [*RIGHT, at("equal", 2, 5)]) == Limits()
    assert find_limits([chosen], [*RIGHT, at("differs", 2, 5)]).kept == (chosen,)
    assert find_limits([chosen], RIGHT).kept == (chosen,)


def test_a_failure_is_not_that_of_every_condition_that_it_breaks() -> None:
    """Nothing is right of no rows, which says nothing of one column."""
    rows, columns = Condition("n0 != 0", ("batch",)), Condition("n0 != 1", ("width",))
    found = find_limits([rows, columns], [*RIGHT, at("equal", 2, 1), at("differs", 0, 1)])
    assert found.kept == (rows,)


def test_what_makes_a_difference_only_together_is_kept() -> None:
    several, wide = Condition("n0 > 1", ("batch",)), Condition("n0 > 1", ("width",))
    alone = [*RIGHT, at("equal", 1, 4), at("equal", 2, 1)]
    assert find_limits([several, wide], alone) == Limits()
    found = find_limits([several, wide], [*alone, at("differs", 1, 1)])
    either = Condition("(n0 > 1) or (n1 > 1)", ("batch", "width"))
    assert found.kept == found.limits == (either,)


def test_what_there_was_no_time_for_is_no_difference_where_its_sizes_ran() -> None:
    """A short budget leaves a recorded step of one token, and no other call of one token."""
    late = at(None, 1, 8, untried="beyond the budget of 60 s")
    assert find_limits([SEVERAL], [*RIGHT, at("equal", 1, 4), late]) == Limits()
    assert find_limits([SEVERAL], [*RIGHT, late]).limits == (SEVERAL,)
    assert find_limits([SEVERAL], [*RIGHT, at("differs", 1, 4), late]).limits == (SEVERAL,)


def test_what_there_was_no_time_for_proves_nothing_at_other_sizes() -> None:
    none = at(None, 0, 4, untried="beyond the budget of 60 s")
    found = find_limits([SEVERAL], [*RIGHT, at("equal", 1, 4), none])
    assert [str(one.test) for one in found.kept] == ["n0 > 0"]
    assert found.limits == ()


def test_what_there_was_no_time_for_together_is_kept() -> None:
    several, wide = Condition("n0 > 1", ("batch",)), Condition("n0 > 1", ("width",))
    late = at(None, 1, 1, untried="beyond the budget of 60 s")
    alone = [*RIGHT, at("equal", 1, 4), at("equal", 2, 1)]
    either = Condition("(n0 > 1) or (n1 > 1)", ("batch", "width"))
    assert find_limits([several, wide], [*alone, late]).kept == (either,)
    both = at("equal", 1, 1)
    assert find_limits([several, wide], [*alone, both, late]) == Limits()


def test_one_that_makes_a_difference_is_a_limit() -> None:
    found = find_limits([EVEN, SEVERAL], [*RIGHT, at("differs", 2, 5), at("equal", 1, 4)])
    assert found == Limits((EVEN,), (EVEN,))
    assert found.on("width") == (EVEN,)
    assert found.on("batch") == ()


def test_one_agreement_among_differences_does_not_drop_it() -> None:
    found = find_limits([EVEN], [*RIGHT, at("equal", 2, 5), at("differs", 2, 7)])
    assert found.limits == (EVEN,)


def test_an_error_of_onnxruntime_is_a_difference() -> None:
    assert find_limits([EVEN], [*RIGHT, at(None, 2, 5, error="no")]).limits == (EVEN,)


def test_what_pytorch_itself_refuses_is_kept_and_is_no_limit() -> None:
    found = find_limits([SMALL], [*RIGHT, at(None, 9, 4, refused="IndexError: no")])
    assert (found.kept, found.limits) == ((SMALL,), ())


def test_what_nobody_tried_is_a_limit() -> None:
    assert find_limits([SMALL], RIGHT).limits == (SMALL,)


def test_a_failure_inside_leaves_the_sizes_that_agreed() -> None:
    found = find_limits([], [*RIGHT, at("differs", 1, 4), at("differs", 1, 8)])
    (condition,) = found.agreed
    assert (condition.test, condition.sizes) == ("n0 in (2, 3)", ("batch",))
    assert condition.line == "output y differs from PyTorch's: max abs 2, max rel 0.5"
    signature = found.applied(Signature((), (), {}, flatten(())[1], ()))
    assert signature.conditions == (("n0 in (2, 3)", ("batch",), condition.line, False),)


def test_a_failure_that_no_size_explains_leaves_nothing() -> None:
    found = find_limits([], [*RIGHT, at("differs", 2, 8)])
    assert found.unproven == "output y differs from PyTorch's: max abs 2, max rel 0.5"


def test_what_the_model_itself_refuses_needs_no_limit() -> None:
    refused = Check({"batch": 1, "width": 8}, made=True, error="no such size", declined=True)
    assert find_limits([], [*RIGHT, refused]) == Limits()
    assert find_limits([], [*RIGHT, replace(refused, declined=False)]).agreed


def test_where_nothing_agrees_nothing_is_proven() -> None:
    assert find_limits([], [at(None, 2, 4, error="no kernel")]).unproven == (
        "onnxruntime failed: no kernel"
    )
    assert find_limits([], [at("random", 2, 4)]).unproven == ""  # there is nothing to be right


def test_sizes_that_the_model_holds_constant_say_nothing() -> None:
    other = at(None, 5, 8, error="input x has shape 5x8, but the model takes 2x8")
    assert find_limits([], [RIGHT[0], other], {"batch": 2}) == Limits()


@pytest.mark.parametrize(
    ("sizes", "broken"), [({"width": 5}, True), ({"width": 4}, False), ({}, False)]
)
def test_only_known_sizes_break_a_condition(sizes: dict[str, int], broken: bool) -> None:
    assert EVEN.broken_by(sizes) is broken
