import ast

import pytest

from torchferry.capturer.rewrite.code_text import (
    condition_text,
    expression,
    function_text,
    names_text,
    written_text,
)
from torchferry.capturer.rewrite.names import DISPATCH


def parsed(text):
    return ast.parse(text, mode="eval").body


def test_functions_return_values_or_as_their_body_does():
    body = ast.parse("y = x").body
    assert function_text("f", ["x"], body, ["y", "x"]) == (
        "def f(x):\n    y = x\n    return (y, x,)\n"
    )
    body = ast.parse("return x").body
    assert function_text("f", ["x"], body) == "def f(x):\n    return x\n"


@pytest.mark.parametrize(
    ("test", "text"),
    [
        ("x > 1", "x > 1"),
        ("not x", "d.invert(x)"),
        ("x and y", "d.both(x, lambda: y)"),
        ("x or not y", "d.either(x, lambda: d.invert(y))"),
        ("x.max().item() > 1", "d.item(x.max()) > 1"),
        ("int(x) > 1 and not bool(y)", "d.both(d.as_int(x) > 1, lambda: d.invert(d.as_bool(y)))"),
        ("float(x[0]) == int(y, 16)", "d.as_float(x[0]) == int(y, 16)"),
        ("x and y and z", "d.both(d.both(x, lambda: y), lambda: z)"),
    ],
)
def test_conditions_ask_no_tensor_for_its_value(test, text):
    assert condition_text(parsed(test)).replace(DISPATCH, "d") == text


def test_names():
    assert (names_text([]), names_text(["a", "b"])) == ("()", "(a, b,)")
    assert written_text(["a", "b"], {"b"}) == ", {1: b}"
    assert written_text(["a", "b"], set()) == ""


def test_new_code_stands_where_the_old_stood():
    node = ast.parse("\n\nx = a + b").body[0]
    assert {getattr(one, "lineno", 3) for one in ast.walk(expression("f(c, d)", node))} == {3}
