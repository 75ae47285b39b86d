import ast
import textwrap

import pytest

from torchferry.capturer.rewrite.returns import (
    are_alike,
    may_return,
    returning_sides,
    without_returns,
)


def body(text):
    return ast.parse(textwrap.dedent(text)).body


@pytest.mark.parametrize(
    ("text", "then", "other"),
    [
        ("if a: return b\nreturn c", "return b", "return c"),
        ("if a: return b\nelse: return c", "return b", "return c"),
        ("if a:\n    if d: return b\nx = 1\nreturn c", "if d:\n    return b\nx = 1\nreturn c",
         "x = 1\nreturn c"),
        ("if a: x = 1\nelse: return b\nreturn c", "x = 1\nreturn c", "return b"),
        ("if a: return b\nelif d: return c\nelse: return e", "return b",
         "if d:\n    return c\nelse:\n    return e"),
    ],
)  # fmt: skip
def test_both_sides_end_with_a_return(text, then, other):
    first, *rest = body(text)
    sides = returning_sides(first, rest)
    assert ["\n".join(map(ast.unparse, side)) for side in sides] == [then, other]


@pytest.mark.parametrize("text", ["if a: x = 1\nreturn x", "if a: return b"])
def test_ifs_that_do_not_always_return_a_value(text):
    first, *rest = body(text)
    assert returning_sides(first, rest) == []


def test_returns_within_loops_stay():
    first, *rest = body("if a:\n    for b in c: return d\n    return e\nreturn f")
    assert may_return(first)
    assert not may_return(rest[0].value)
    plain = without_returns([first, *rest])
    returns = [one for top in plain for one in ast.walk(top) if isinstance(one, ast.Return)]
    assert [ast.unparse(one) for one in returns] == ["return d"]


@pytest.mark.parametrize(("then", "other", "alike"), [("b", "c", True), ("b, c", "d", False),
                                                      ("b, c", "d, e", True)])  # fmt: skip
def test_as_many_values(then, other, alike):
    assert are_alike([body(f"return {then}"), body(f"return {other}")]) is alike
