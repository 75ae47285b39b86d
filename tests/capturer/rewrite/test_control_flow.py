import ast
import textwrap

import pytest

from torchferry.capturer.rewrite.control_flow import Rewriter
from torchferry.capturer.rewrite.names import DISPATCH


def rewrite(body):
    text = f"def f(x, y, flag):\n{textwrap.indent(textwrap.dedent(body), '    ')}"
    function = ast.parse(text).body[0]
    rewriter = Rewriter(function, "f.py")
    rewriter.rewrite()
    return ast.unparse(function), rewriter


@pytest.mark.parametrize(
    ("body", "call"),
    [
        ("if x: y = 1\nreturn y", "choose"),
        ("if x: z = 1\nelse: z = 2\nreturn z", "choose"),
        ("if x: return 1\nreturn 2", "decide"),
        ("if x: return 1, y\nelse: return 2, y", "decide"),
        ("if x:\n    y = 1\n    return y\ny = 2\nreturn y", "decide"),
        ("if x and y: y = 1\nreturn y", "both"),
        ("if x or not y: y = 1\nreturn y", "either"),
        ("if x: y[0] = 1\nreturn y", "number"),
        ("if x: y[0] += 1\nreturn y", "choose"),
        ("if x: y.T.add_(1)\nreturn y", "choose"),
        ("while x: x[0] -= 1\nreturn x", "repeat"),
        ("with f():\n    if x: y = 1\nreturn y", "choose"),
        ("for layer in self.layers:\n    if x: x = layer(x)\nreturn x", "choose"),
        ("def g(h):\n    if h: h = 1\n    return h\nreturn g(x)", "choose"),
        ("while x: x = x - 1\nreturn x", "repeat"),
        ("if x: raise ValueError\nreturn y", "check"),
        ("assert x\nreturn y", "check"),
        ("if not x: y = 1\nreturn y", "invert"),
        ("return x if y > 0 else -x", "choose"),
        ("h = y\nfor t in range(y):\n    h = h + x[t]\nreturn h", "loop"),
        ("h = y\nfor t in range(2, y):\n    h = h + x[t]\nreturn h", "loop"),
        ("h = y\nfor row in x:\n    h = h + row\nreturn h", "loop"),
        ("h = y\nfor t, row in enumerate(x):\n    h = h + row * y[t]\nreturn h", "loop"),
        ("h = y\nfor t in range(y):\n    h = h + x[t] * t\nreturn h", "walk_range"),
        ("h = y\nfor t in range(1, y):\n    h = h + x[t - 1]\nreturn h", "loop"),
        ("for t in range(y):\n    x[t] = x[t - 1]\nreturn x", "loop"),
        ("for t in range(y):\n    x[:, t] = t\nreturn x", "fill"),
        ("h = y\nfor t in range(9, -1, -1):\n    h = h + x[t]\nreturn h", "loop"),
        ("h = y\nfor a, b in zip(x, y):\n    h = h + a * b\nreturn h", "loop"),
        ("h = y\nfor row in x:\n    h = h + row\nreturn h + row", "loop"),
        ("h = y\nfor row in x:\n    row += h\n    h = row\nreturn h", "loop"),
        ("h = y\nfor t, r in enumerate(x, 1):\n    h = h + r\nreturn h", "enumerated"),
        ("h = y\nfor t in range(9, y, -2):\n    h = h + x[t]\nreturn h", "walk_range"),
        ("h = y\nfor t in range(y):\n    if t: continue\n    h = h + x[t]\nreturn h", "loop"),
        ("h = y\nfor t in range(y):\n    if h: break\n    h = h + x[t]\nreturn h", "pick"),
        ("while x:\n    if y: break\n    x = x - 1\nreturn x", "repeat"),
        ("z = []\nfor row in x:\n    z.append(row)\nreturn z", "loop"),
        ("z = []\nfor row in x:\n    z += [row]\nreturn z", "loop"),
        ("return [row + 1 for row in x]", "collect"),
        ("return any(row > 1 for row in x)", "some"),
        ("return sum(a * b for a, b in zip(x, y))", "total"),
        ("return max(float(row.max()) for row in x.split(4, 1))", "read"),
    ],
)
def test_constructs_become_calls(body, call):
    text, rewriter = rewrite(body)
    assert f"{DISPATCH}.{call}(" in text
    assert rewriter.count >= 1
    assert len(rewriter.refused) == ("self.layers" in body)


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("if x: z = 1\nreturn z", "z is set on one side only"),
        ("if x: y.a = 1\nreturn y", "it sets y.a"),
        ("if x: print(y)\nreturn y", "it sets no name that is used afterwards"),
        ("if x: y.a[0] = 1\nreturn y", "it sets y.a[0]"),
        ("for t in range(y):\n    z = x[t]\nreturn y", "nothing of it is read afterwards"),
        ("if x:\n    y.a.mul_(2)\n    y = 1\nreturn y", "it calls y.a.mul_, which changes"),
        ("for t in range(y):\n    if x: return y\nreturn x", "it returns on one side"),
        ("while x:\n    x = 1\nelse:\n    y = 1\nreturn x", "it has an else"),
        ("while x: z = 1\nreturn z", "z is not set before it"),
        ("if x:\n    y = 1\n    raise ValueError\nreturn y", "it raises among other statements"),
        ("if x: return 1\nreturn 2, 3", "its sides return unlike values"),
        ("\nreturn x if (z := y) else -z", "it assigns within an expression"),
        ("\nreturn super().f(x) if y else x", "it calls super()"),
        ("if x: y = super().f(x)\nreturn y", "it calls super()"),
        ("if x: return y\nreturn (y,)", "its sides return unlike values"),
        ("if x: return (z := y)\nreturn y", "it assigns within an expression"),
        ("while (x := x - 1) > 0: y = x\nreturn y", "it assigns within an expression"),
        ("if (y := x): y = y + 1\nreturn y", "it assigns within an expression"),
        ("if x:\n    y.z.append(x)\n    y = 1\nreturn y", "it calls y.z.append, which changes"),
    ],
)
def test_what_is_refused_stays_as_it_was(body, reason):
    text, rewriter = rewrite(body)
    assert DISPATCH not in text
    (refused,) = rewriter.refused
    assert reason in refused.reason
    file, _, number = refused.where.partition(":")
    assert file == "f.py"
    assert int(number) >= 2
    assert str(refused) == f"{refused.where}: {refused.line}: {refused.reason}"


@pytest.mark.parametrize(
    ("head", "reason"),
    [
        ("layer in y", "layer is called"),
        ("layer in y.layers", "only a loop over"),
        ("_, layer in zip(x, y)", "layer is called"),
        ("layer in x.children()", "only a loop over"),
    ],
)
def test_loops_over_modules_are_no_concern(head, reason):
    text, rewriter = rewrite(f"for {head}:\n    x = layer(x)\nreturn x")
    assert DISPATCH not in text
    assert rewriter.refused[0].line == f"for {head}:"
    assert reason in rewriter.refused[0].reason


def test_what_a_side_makes_it_may_change():
    text, rewriter = rewrite("if x:\n    y = [x]\n    y.append(flag)\nreturn y")
    assert f"{DISPATCH}.choose(" in text
    assert rewriter.refused == []


def test_lines_are_those_of_the_source():
    function = ast.parse("def f(x):\n    y = 1\n    if x:\n        y = 2\n    return y").body[0]
    Rewriter(function, "f.py").rewrite()
    lines = [statement.lineno for statement in function.body]
    assert lines == [2, 3, 3, 3, 5]


def test_a_refusal_has_the_lines_within_it():
    _, rewriter = rewrite("for row in x:\n    y = y + row\n    if y:\n        yield y\nreturn y")
    (refused,) = rewriter.refused
    assert [number for number in range(9) if refused.has("f.py", number)] == [2, 3, 4, 5]
    assert not refused.has("g.py", 3)


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("if x:\n    def g(): pass\n    y = g\nreturn y", "it defines a function"),
        ("if x:\n    y = locals()\nreturn y", "it calls locals()"),
        ("if x:\n    y = f(x, out=flag)\nreturn y", "it calls f(out=...)"),
        ("if x:\n    y = relu_(flag)\nreturn y", "it calls relu_, which"),
        ("g = lambda: y\nif x:\n    y = 1\nreturn g()", "a function within reads y"),
        ("range = f\nh = y\nfor t in range(y):\n    h = h + x[t]\nreturn h", "only a loop over"),
    ],
)
def test_what_functions_of_ours_would_change(body, reason):
    text, rewriter = rewrite(body)
    assert DISPATCH not in text
    assert reason in rewriter.refused[-1].reason


def test_what_changes_in_place_is_kept_by_all_its_names():
    text, rewriter = rewrite("k = y\nif x:\n    y += 1\nreturn k")
    assert "y = _own(y)" in text
    assert ", {0: y})" in text
    assert rewriter.places == {"f.py:3"}
