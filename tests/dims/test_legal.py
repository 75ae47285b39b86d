from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from torchferry.dims import Legal
from torchferry.errors import UsageError


@pytest.mark.parametrize(
    ("text", "legal", "illegal"),
    [
        ("n=3", [3], [2, 4]),
        ("n=1..4", [1, 2, 4], [0, 5]),
        ("n=64..512:8", [64, 72, 512], [63, 65, 520]),
        ("n=64|128", [64, 128], [65, 96]),
        ("n=1|64..96:32|7", [1, 7, 64, 96], [2, 65, 128]),
        ("n=64..", [64, 65, 10**6], [63]),
        ("n=64..:32", [64, 96, 3200], [0, 65]),
        ("n=0..2", [0, 1], [3]),
        ("  n = 1 .. 4 : 2 ", [1, 3], [2, 4]),
    ],
)
def test_forms(text: str, legal: list[int], illegal: list[int]) -> None:
    stated = Legal.of(text)
    assert all(stated.allows({"n": size}) for size in legal)
    assert not any(stated.allows({"n": size}) for size in illegal)
    assert stated.allows({"other": 5})
    again = Legal.of(str(stated))
    assert again == stated


def test_several_names() -> None:
    stated = Legal.of("height=64..512:8, batch_size=1..4,width=64|128")
    assert list(stated.ranges) == ["height", "batch_size", "width"]
    assert str(stated) == "height=64..512:8, batch_size=1..4, width=64|128"
    assert (stated.ends("height"), stated.ends("width"), stated.ends("other")) == (
        (64, 512), (64, 128), (0, None),
    )  # fmt: skip
    assert [Legal.of("a=3,b=3..4,c=3..").constant(name) for name in "abcd"] == [
        3,
        None,
        None,
        None,
    ]
    assert stated.text("other") == ""


@pytest.mark.parametrize(
    ("sizes", "text"),
    [
        ({"n": 3}, "n=3"),
        ({"n": range(64, 513, 8)}, "n=64..512:8"),
        ({"n": [128, 64]}, "n=64|128"),
        ({"n": "1..4", "m": {5}}, "n=1..4, m=5"),
        (None, ""),
        ({}, ""),
    ],
)
def test_what_python_gives(sizes: Any, text: str) -> None:
    stated = Legal.of(sizes)
    assert str(stated) == text
    assert bool(stated) == bool(text)
    assert Legal.of(stated) is stated


@pytest.mark.parametrize(
    ("text", "what", "place"),
    [
        ("", "a name is missing", 0),
        ("height", "'=' is missing", 6),
        ("height=", "a number is missing", 7),
        ("height=x64", "a number is missing before 'x64'", 7),
        ("height=512..64", "the range ends below its begin, 512", 12),
        ("height=1..4:0", "a step is 1 or more", 12),
        ("height=1..4 width=3", "',' is missing before 'width'", 12),
        ("a=1, a=2", "a stands here a second time", 5),
        ("a=1,", "a name is missing", 4),
        ("a=-1", "a number is missing before '-'", 2),
        ("3=a", "a name is missing before '3'", 0),
        ("a=99999999999", "a size is less than 2**31", 2),
    ],
)
def test_a_mistake_is_shown_where_it_is(text: str, what: str, place: int) -> None:
    with pytest.raises(UsageError) as raised:
        Legal.of(text)
    first, shown, caret = str(raised.value).split("\n")
    assert first.startswith(f"sizes: {what}; write NAME=1..8")
    assert shown == f"  {text}"
    assert caret.index("^") == place + 2


@pytest.mark.parametrize("sizes", [5, ["n"], {"n": "x"}, {"n": []}, {"n": -1}, {"n": 1.5},
                                   {"n": True}, {"n": range(5, 1)}])  # fmt: skip
def test_what_is_no_size_is_refused(sizes: Any) -> None:
    with pytest.raises(UsageError, match="sizes"):
        Legal.of(sizes)


def test_unknown_names_list_the_known_ones() -> None:
    stated = Legal.of("hight=1..4")
    stated.check_names(["hight"])
    with pytest.raises(UsageError, match=r"called 'hight'\. Known: batch_size, height"):
        stated.check_names(["batch_size", "height"])
    with pytest.raises(UsageError, match="nothing varies"):
        stated.check_names([])


@given(st.integers(0, 300), st.integers(1, 9), st.integers(0, 40), st.integers(1, 12))
def test_the_nearest_are_legal_and_none_is_nearer(
    wanted: int, step: int, low: int, count: int
) -> None:
    stated = Legal.of({"n": f"{low}..{low + 90}:{step}|500"})
    near = stated.near("n", wanted, count)
    assert all(stated.allows({"n": size}) for size in near)
    every = [size for size in range(600) if stated.allows({"n": size})]
    assert sorted(abs(n - wanted) for n in near) == sorted(abs(n - wanted) for n in every)[:count]


def test_near_without_a_statement_is_the_size_itself() -> None:
    assert Legal().near("n", 5, 3) == [5, 6, 4]
    assert Legal().near("n", 0, 2) == [0, 1]
