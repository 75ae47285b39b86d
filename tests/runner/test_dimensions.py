import pytest

from torchferry.errors import UsageError
from torchferry.runner.dimensions import check_sizes, named_axes

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


def test_an_expression_of_several_names_that_no_input_tells_is_a_size_of_its_own():
    axes = named_axes({"mask": SHAPES["mask"], "other": ["past + sequence"]}, ("mask", "other"))
    known = check_sizes({"mask": (3, 8), "other": (8,)}, axes)
    assert known == {"batch": 3, "past + sequence": 8}
    with pytest.raises(UsageError, match=r"input other has 7 at axis 0, which is past \+ seq"):
        check_sizes({"mask": (3, 8), "other": (7,)}, axes)


@pytest.mark.parametrize(
    ("sizes", "known"),
    [((6, 4), {"n": 3}), ((0, 1), {"n": 0}), ((6, 5), None), ((5, 3), None), ((7, 4), None)],
)
def test_expressions_of_one_name_tell_it(sizes, known):
    axes = named_axes({"x": ["2*n"], "y": ["n + 1"]}, ("x", "y"))
    shapes = {"x": sizes[:1], "y": sizes[1:]}
    if known is None:
        with pytest.raises(UsageError, match="exported for sizes that agree"):
            check_sizes(shapes, axes)
    else:
        assert check_sizes(shapes, axes) == known


def test_a_remainder_tells_no_name():
    axes = named_axes({"x": ["n % 4"], "y": ["n // 2"]}, ("x", "y"))
    assert check_sizes({"x": (3,), "y": (5,)}, axes) == {"n % 4": 3, "n//2": 5}
