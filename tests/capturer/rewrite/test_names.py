import ast

import pytest

from torchferry.capturer.rewrite.names import (
    assigned,
    captured_within,
    changed_in_place,
    only_changed,
    read,
)


def body(text):
    return ast.parse(text).body


def test_what_is_set_read_and_changed():
    statements = body("a += b\nc = [d for d in e]\nf @= g\nh, i = j\na = 2\nk[0] = 1")
    assert assigned(statements) == {"a", "c", "f", "h", "i"}
    assert read(statements) == {"a", "b", "d", "e", "f", "g", "j", "k"}
    assert changed_in_place(statements) == {"a", "k"}
    assert only_changed(statements) == {"k"}
    views = body("a[0].T.add_(1)\nb.view(-1)[1] = 2\nself.c[0] = 1\nd.clone()\ne.f_().g")
    assert changed_in_place(views) == {"a", "b", "e"}
    assert only_changed(body("a += 1\nfor t in a:\n    b -= t\n    c @= t")) == {"a", "b"}


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("f = lambda: h", "h"),
        ("f = lambda h: h + 1", ""),
        ("g = (h * k for k in x)", "h"),
        ("s = sum(h * k for k in x)", ""),
        ("g = sorted(x, key=lambda v: v * h)", "h"),
        ("def f():\n    return h", "h"),
        ("g = [h for h in x]", ""),
    ],
)
def test_what_functions_within_read_later(text, name):
    assert captured_within(ast.parse(text), {"h"}) == name
