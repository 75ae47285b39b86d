import ast

import pytest

from torchferry.capturer.recurrence import Recurrence, counts


def loop(text):
    return ast.parse(text).body[0]


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("for t in range(n): pass", True),
        ("for t in range(x.shape[1]): pass", True),
        ("for t in range(1, n): pass", False),
        ("for t in items: pass", False),
        ("for t, u in range(n): pass", False),
        ("for t in range(n):\n    pass\nelse:\n    pass", False),
    ],
)
def test_what_counts(text, want):
    assert counts(loop(text)) is want


def recurrence(text):
    return Recurrence(loop(text), {"h"}, {"h", "x", "ys"})


def test_what_is_sliced_collected_and_carried():
    found = recurrence("for t in range(n):\n    h = h + x[:, t] * w[t]\n    ys.append(h * 2)")
    assert found.slices == [("x", 1), ("w", 0)]
    assert found.collected == ["ys"]
    assert found.carried == ["h"]
    assert found.count == "n"


def test_a_stack_becomes_a_move_of_the_axis():
    found = recurrence("for t in range(n):\n    h = h + x[t]\n    ys.append(h)")
    later = ast.parse("return torch.stack(ys, dim=1) + torch.stack(zs)").body[0]
    found.stack(later)
    assert ast.unparse(later) == "return ys.movedim(0, 1) + torch.stack(zs)"


def test_a_list_with_another_use_is_refused():
    text = "def f(x, h):\n    ys = []\n    for t in range(n):\n        h = h + x[t]\n"
    text += "        ys.append(h)\n    return ys[0], torch.stack(ys)"
    function = ast.parse(text).body[0]
    found = Recurrence(function.body[1], {"h"}, {"h", "x", "ys"})
    reason = found.obstacle({"x", "h", "ys"}, function.body[2:], function)
    assert reason == "ys is used for more than append and one torch.stack"
