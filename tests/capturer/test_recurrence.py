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


@pytest.mark.parametrize(
    ("start", "after", "reason"),
    [
        ("ys = [h]", "torch.stack(ys)", "ys is not set to [] just before it"),
        ("ys, zs = [], []", "torch.stack(ys)", "ys is not set to [] just before it"),
        ("ys = []", "torch.stack(ys) * t", "t is read after it"),
        ("ys: list = []", "torch.stack(ys)", ""),
    ],
)
def test_what_stands_before_and_after(start, after, reason):
    text = f"def f(x, h):\n    {start}\n    for t in range(n):\n        h = h + x[t]\n"
    function = ast.parse(f"{text}        ys.append(h)\n    return {after}").body[0]
    before, loop, *rest = function.body
    found = Recurrence(loop, {"h"}, {"h", "x", "ys"}, [before])
    assert found.obstacle({"x", "h", "ys"}, rest, function) == reason


def test_another_loop_may_have_the_same_counter():
    text = "def f(x, h):\n    for t in range(n):\n        h = h + x[t]\n"
    function = ast.parse(f"{text}    for t in range(3):\n        h = h + t\n    return h").body[0]
    found = Recurrence(function.body[0], {"h"}, {"h", "x"})
    assert found.obstacle({"x", "h"}, function.body[1:], function) == ""


def test_a_list_with_another_use_is_refused():
    text = "def f(x, h):\n    ys = []\n    for t in range(n):\n        h = h + x[t]\n"
    text += "        ys.append(h)\n    return ys[0], torch.stack(ys)"
    function = ast.parse(text).body[0]
    found = Recurrence(function.body[1], {"h"}, {"h", "x", "ys"})
    reason = found.obstacle({"x", "h", "ys"}, function.body[2:], function)
    assert reason == "ys is used for more than append and one torch.stack"
