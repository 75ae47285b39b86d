"""Text of arithmetic is computed, and nothing else is."""

from __future__ import annotations

import ast
from typing import Any

import pytest

from torchferry.dims.evaluation import value_of


def value(text: str, **known: int) -> Any:
    return value_of(ast.parse(text, mode="eval").body, known)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("n0 + 2 * n1 - 1", 13), ("n0 // n1 % 3", 1), ("-n0 / n1", -1.5), ("n0**2", 36),
        ("n0 in (6, 7)", True), ("n0 > 3 and not n1 < 2", True), ("1 < n1 < n0", True),
        ("max(n0, n1, 9) - min(n0, n1)", 5), ("math.sqrt(n0) >= 2.4", True), ("round(n0 / 4)", 2),
    ],
)  # fmt: skip
def test_as_python_computes_it(text: str, expected: Any) -> None:
    assert value(text, n0=6, n1=4) == expected


@pytest.mark.parametrize(
    ("text", "error"),
    [("n0.real", SyntaxError), ("f(n0)", SyntaxError), ("n2", SyntaxError), ("'a'", SyntaxError),
     ("n0 % 0", ZeroDivisionError), ("9 ** 99", OverflowError)],
)  # fmt: skip
def test_what_is_none(text: str, error: type[Exception]) -> None:
    with pytest.raises(error):
        value(text, n0=6)
