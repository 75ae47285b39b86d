import ast

import pytest

from torchferry.capturer.rewrite.steps import steps_of


def loop(text):
    return ast.parse(text).body[0]


@pytest.mark.parametrize(
    ("head", "count", "first", "names"),
    [
        ("t in range(n)", "n", "0", ("t", "")),
        ("t in range(x.shape[1])", "x.shape[1]", "0", ("t", "")),
        ("t in range(len(x) - 1)", "d.length(x) - 1", "0", ("t", "")),
        ("t in range(1, n)", "n - 1", "1", ("t", "")),
        ("t in range(len(y) + 1, len(x))", "d.length(x) - (d.length(y) + 1)", "d.length(y) + 1",
         ("t", "")),
        ("row in x", "d.length(x)", "0", ("", "row of x along 0")),
        ("t, row in enumerate(x)", "d.length(x)", "0", ("t", "row of x along 0")),
        ("t in reversed(range(n))", "n", "0", ("t backwards", "")),
        ("t in range(n - 1, -1, -1)", "n - 1 + 1", "0", ("t backwards", "")),
        ("row in x.unbind(1)", "d.length(x, 1)", "0", ("", "row of x along 1")),
        ("row in torch.unbind(x, dim=-2)", "d.length(x, -2)", "0", ("", "row of x along -2")),
        ("t, row in enumerate(f(x).unbind(1))", "d.length(_over_1_0, 1)", "0",
         ("t", "row of _over_1_0 along 1")),
        ("row in x[1:]", "d.length(_over_1_0)", "0", ("", "row of _over_1_0 along 0")),
        ("a, b in zip(x, y.unbind(1))", "d.length(x)", "0",
         ("", "a of x along 0, b of y along 1")),
    ],
)  # fmt: skip
def test_what_a_loop_counts_and_takes(head, count, first, names):
    steps = steps_of(loop(f"for {head}: pass"))
    assert (steps.count("d"), steps.first("d")) == (count, first)
    rows = ", ".join(f"{row.name} of {row.over} along {row.axis}" for row in steps.rows)
    assert (steps.counter + " backwards" * steps.backwards, rows) == names
    assert steps.count("e") == count.replace("d.", "e.")  # nothing was changed


@pytest.mark.parametrize(
    "text",
    [
        "for t in range(-1, n): pass",
        "for t in range(0, n, 2): pass",
        "for t in range(*n): pass",
        "for t, u in range(n): pass",
        "for t, row in enumerate(x, 1): pass",
        "for t, row in enumerate(x, start=1): pass",
        "for row in x.y: pass",
        "for a, b in zip(x, y, z): pass",
        "for a in zip(x, y): pass",
        "for row in x.unbind(0, 1): pass",
        "for t in range(9, y, -1): pass",
        "for t, row in reversed(enumerate(x)): pass",
        "for a, b in x: pass",
        "for t in range(n):\n    pass\nelse:\n    pass",
        "for row in x:\n    pass\nelse:\n    pass",
    ],
)
def test_loops_that_have_no_such_steps(text):
    assert steps_of(loop(text)) is None
