import logging

import pytest

from torchferry.errors import UsageError
from torchferry.runner.dimensions import check_conditions, check_sizes, named_axes
from torchferry.values.flatten import flatten
from torchferry.values.signature import Signature

SHAPES = {
    "x": ["batch", "2*batch", 7, None, ""],
    "key": ["batch", "past"],
    "mask": ["batch", "past + sequence"],
    "ids": ["batch", "sequence"],
}


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({}, None),
        ({"x": (3, 5, 7, 8, 9)}, r"input x has 5 at axis 1, which is 2\*batch \(batch = 3: input"),
        ({"ids": (4, 2)}, "input ids has 4 at axis 0, which is batch .batch = 3: input x has 3"),
        (
            {"mask": (3, 8)},
            "mask has 8 at axis 1, which is past . sequence .past = 5, sequence = 2: input key",
        ),
        ({"key": (3, 0), "mask": (3, 2)}, None),
    ],
)
def test_sizes_keep_what_the_graph_was_exported_for(changed, message):
    sizes = {"x": (3, 6, 7, 8, 9), "key": (3, 5), "mask": (3, 7), "ids": (3, 2), **changed}
    axes = named_axes(SHAPES, tuple(SHAPES))
    if message is None:
        want = {"batch": 3, "past": sizes["key"][1], "sequence": 2}
        assert check_sizes(sizes, axes) == want
    else:
        with pytest.raises(UsageError, match=message):
            check_sizes(sizes, axes)


def test_axes_come_in_the_order_given_and_single_names_first():
    found = [(one.place, one.axis) for one in named_axes(SHAPES, ("mask", "key"))]
    assert found == [("mask", 0), ("key", 0), ("key", 1), ("mask", 1)]


def test_an_expression_may_stand_before_its_name():
    shapes = {"x": ["2*batch", "batch"]}
    axes = named_axes(shapes, ("x",))
    assert check_sizes({"x": (6, 3)}, axes) == {"batch": 3}
    with pytest.raises(UsageError, match=r"input x has 5 at axis 0, which is 2\*batch"):
        check_sizes({"x": (5, 3)}, axes)


def test_an_expression_of_a_name_that_no_input_tells_is_let_be():
    assert check_sizes({"mask": (3, 8)}, named_axes(SHAPES, ("mask",))) == {"batch": 3}


def conditional(*conditions):
    return Signature((), (), {}, flatten(())[1], (), conditions=conditions)


def test_conditions_that_do_not_hold_are_refused():
    signature = conditional(("n0 % 4 == 2", ("batch",)), ("n0 > 1", ("unknown",)))
    check_conditions(signature, {"batch": 6})
    with pytest.raises(UsageError, match=r"sizes with batch % 4 == 2, and batch is 5"):
        check_conditions(signature, {"batch": 5})


def test_a_condition_without_consequence_warns_once(caplog):
    signature = conditional(("n0 > 1", ("of_this_test",)))
    with caplog.at_level(logging.WARNING, "torchferry"):
        for _ in range(2):
            check_conditions(signature, {"of_this_test": 1})
    assert caplog.text.count("captured for sizes with of_this_test > 1") == 1


def test_a_condition_that_cannot_be_read_is_refused():
    with pytest.raises(UsageError, match="signature cannot be read"):
        check_conditions(conditional(("import os", ("n",))), {"n": 1})
