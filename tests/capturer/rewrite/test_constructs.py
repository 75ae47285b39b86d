import ast

from torchferry.capturer.rewrite.constructs import Constructs, Refusal
from torchferry.capturer.rewrite.names import DISPATCH


def constructs(text, **options):
    function = ast.parse(f"def f(x, y):\n{text}").body[0]
    return Constructs(function, "f.py", **options)


def test_checks_alone():
    found = constructs("    if x: raise KeyError(y)\n    assert y, 'z'\n    return x if y else 1")
    found.rewrite_checks()
    text = ast.unparse(found.function).replace(DISPATCH, "d")
    assert "d.check(x, _fail_2)" in text
    assert "d.check(d.invert(y), _fail_3)" in text
    assert "raise AssertionError('z')" in text
    assert text.endswith("return x if y else 1")
    assert (found.count, found.places) == (2, {"f.py:2", "f.py:3"})


def test_conditionals_alone():
    found = constructs("    return x if y else -x", leave={})
    found.rewrite_expressions()
    assert f"{DISPATCH}.choose(y, lambda _own: (x,), lambda _own: (-x,))[0]" in ast.unparse(
        found.function
    )


def test_what_is_left_alone_is_noted_once():
    found = constructs("    return x if y else -x", leave={"f.py:2": "it is asked for"})
    found.rewrite_expressions()
    found.rewrite_expressions()
    assert found.refused == [Refusal("f.py:2", "x if y else -x", "it is asked for", 2)]
    assert str(found.refused[0]) == "f.py:2: x if y else -x: it is asked for"


def test_the_last_line_that_a_construct_decides():
    found = constructs("    if x:\n        return y\n    z = 1\n    return z")
    first, *_, last = found.function.body
    found.span(first, last)
    assert found.lasts == {"f.py:2": 5}
