from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from torch.export import Dim as TorchDim

from torchferry.dims import Dim
from torchferry.dims.spec import (
    AxisSpec,
    is_axis,
    parse_axis,
    parse_dynamic_axes,
    parse_shapes,
    shapes_source,
    to_dynamic_axes,
)
from torchferry.errors import UsageError

BATCH = TorchDim("batch")


def named(name: str) -> AxisSpec:
    return AxisSpec(size=Dim.of(name))


DYNAMIC, AUTO = AxisSpec(hint="DYNAMIC"), AxisSpec(hint="AUTO")


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("batch", named("batch")),
        ("cache+seq", AxisSpec(size=Dim.of("cache") + Dim.of("seq"))),
        ("4", AxisSpec(size=4)),
        ("odd name", named("odd name")),
        (Dim.of("n"), named("n")),
        (7, AxisSpec(size=7)),
        (0, AxisSpec(size=0)),
        (-1, DYNAMIC),
        (None, None),
        (TorchDim.STATIC, None),
        (TorchDim.DYNAMIC, DYNAMIC),
        (TorchDim.AUTO, AUTO),
        (TorchDim.DYNAMIC(min=2, max=8), AxisSpec(hint="DYNAMIC", low=2, high=8)),
        (TorchDim("b"), named("b")),
        (TorchDim("b", min=3), AxisSpec(size=Dim.of("b"), low=3)),
        (TorchDim("b", max=9), AxisSpec(size=Dim.of("b"), high=9)),
        (2 * TorchDim("b", max=9) + 1, AxisSpec(size=2 * Dim.of("b") + 1)),
        (DYNAMIC, DYNAMIC),
    ],
    ids=str,
)
def test_an_axis_in_every_form(value: Any, expected: AxisSpec | None) -> None:
    assert parse_axis(value) == expected
    assert is_axis(value) is (value is not None)


@pytest.mark.parametrize("value", [True, False, -2, 1.5, "", " ", [1], object, TorchDim], ids=str)
def test_no_axis(value: Any) -> None:
    with pytest.raises(UsageError, match=r"the place is .*: give a name"):
        parse_axis(value, "the place")
    assert is_axis(value) is (value in (-2, "", " ") and not isinstance(value, bool))


@pytest.mark.parametrize(
    "shapes",
    [
        {"x": {0: "batch", 1: 4}},
        {"x": {0: BATCH, 1: 4, 2: None}},
        {"x": {0: "batch", 1: 4, 2: TorchDim.STATIC}},
        {"x": ("batch", 4, None)},
        {"x": [BATCH, 4]},
    ],
    ids=str,
)
def test_all_forms_of_one_thing_are_one(shapes: Any) -> None:
    assert parse_shapes(shapes) == {"x": {0: named("batch"), 1: AxisSpec(size=4)}}


def test_nesting_stays() -> None:
    shapes = {
        "cache": [[{2: "past"}], ({0: -1}, None)],
        "flag": None,
        "n": TorchDim.DYNAMIC,
        "state": {"h": {}, "empty": ()},
        "blank": (None, None),
    }
    assert parse_shapes(shapes) == {
        "cache": [[{2: named("past")}], ({0: DYNAMIC}, None)],
        "flag": None,
        "n": DYNAMIC,
        "state": {"h": {}, "empty": ()},
        "blank": (None, None),
    }
    assert parse_shapes(None) is None
    assert parse_shapes(({0: "a"}, ["b", None])) == ({0: named("a")}, {0: named("b")})


@pytest.mark.parametrize(
    ("shapes", "said"),
    [
        ({"x": {0: "a", "y": "b"}}, r"dynamic_shapes\['x'\] has the keys \[0, 'y'\]"),
        ({"x": {-1: "a"}}, r"dynamic_shapes\['x'\] has the keys \[-1\]"),
        ({"x": [{0: 1.5}]}, r"dynamic_shapes\['x'\]\[0\]\[0\] is 1.5"),
        ({"x": {1: True}}, r"dynamic_shapes\['x'\]\[1\] is True"),
        ({"x": object}, r"dynamic_shapes\['x'\] is"),
        ({"x": True}, r"dynamic_shapes\['x'\] is True"),
    ],
    ids=str,
)
def test_what_is_no_dynamic_shape_is_told_with_its_place(shapes: Any, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        parse_shapes(shapes)


axes = st.one_of(
    st.sampled_from(["batch", "seq", "a+b", "2*n", -1, 3, 0, "odd name"]),
    st.sampled_from([TorchDim.AUTO, TorchDim.DYNAMIC, TorchDim.DYNAMIC(min=2), TorchDim.STATIC]),
    st.sampled_from([TorchDim("b"), TorchDim("b", min=2, max=5), 2 * TorchDim("b")]),
)
tensors = st.dictionaries(st.integers(0, 4), axes, max_size=3) | st.lists(
    axes | st.none(), max_size=3
)
nested = st.recursive(
    tensors | st.none() | axes,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.lists(inner, max_size=3).map(tuple)
        | st.dictionaries(st.sampled_from(["x", "y", "z"]), inner, max_size=3)
    ),
    max_leaves=8,
)


@given(nested)
def test_python_source_says_the_same(shapes: Any) -> None:
    parsed = parse_shapes(shapes)
    back = eval(shapes_source(shapes), {"Dim": TorchDim})  # noqa: S307  (what was just written)
    assert parse_shapes(back) == parsed
    assert parse_shapes(parsed) == parsed


def test_old_dynamic_axes() -> None:
    old = {"x": {0: "batch", 1: "seq"}, "y": [0, 2], "z": {}}
    parsed = parse_dynamic_axes(old)
    assert parsed == {
        "x": {0: named("batch"), 1: named("seq")},
        "y": {0: DYNAMIC, 2: DYNAMIC},
        "z": {},
    }
    assert to_dynamic_axes(parsed) == {
        "x": {0: "batch", 1: "seq"},
        "y": {0: "y_dim_0", 2: "y_dim_2"},
    }


def test_what_the_old_form_cannot_say() -> None:
    with pytest.raises(UsageError, match="cache is nested"):
        to_dynamic_axes({"cache": [{0: "batch"}]})
    with pytest.raises(UsageError, match="cache is nested"):
        to_dynamic_axes({"cache": {"k": {0: "batch"}}})
    with pytest.raises(UsageError, match="by the name of an input"):
        to_dynamic_axes(({0: "batch"}, {}))
    assert to_dynamic_axes({"x": {0: 4}, "none": None}) == {"x": {}}


@pytest.mark.parametrize("axes", [5, {"0": "batch"}, ["a"], None], ids=str)
def test_what_is_no_dynamic_axes(axes: Any) -> None:
    with pytest.raises(UsageError, match=r"dynamic_axes\['x'\] is"):
        parse_dynamic_axes({"x": axes})
