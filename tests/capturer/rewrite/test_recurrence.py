import ast

import pytest
import torch

from torchferry.capturer import capture, rewritten
from torchferry.capturer.rewrite.names import DISPATCH
from torchferry.capturer.rewrite.recurrence import Recurrence
from torchferry.observer import Observation
from torchferry.values.kinds import attempt


def recurrence(text, outside=(), bound=()):
    return Recurrence(ast.parse(text).body[0], {*outside}, {*bound})


@pytest.mark.parametrize(
    ("body", "lists", "carried"),
    [
        ("h = h + x[t]", [], ["h"]),
        ("h = x[t]", [], []),  # set anew in each step
        ("z = x[t]", [], ["z"]),  # and read after the loop
        ("h = h + x[t]; ys.append(h * 2)", ["ys"], ["h"]),
        ("ys += [x[t]]", ["ys"], []),
        ("row = []\n    row.append(x[t])\n    ys.append(torch.stack(row))", ["ys"], []),
        ("h[0] = x[t]", [], ["h"]),
        ("if t:\n        h = x[t]\n    k = h", [], ["h"]),
        ("if t:\n        h = 1\n    else:\n        h = 2\n    k = h", [], []),
        ("h, k = k, h", [], ["h", "k"]),
    ],
)
def test_what_is_appended_and_carried(body, lists, carried):
    found = recurrence(f"for t in range(n):\n    {body}", {"z", "ys"})
    assert (found.lists, found.carried) == (lists, carried)
    assert found.targets == {"t"}


def test_what_a_loop_writes_is_collected():
    found = recurrence("for t, row in enumerate(x):\n    out[:, t] = row", {"out"}, {"out"})
    text = found.text("over").replace(DISPATCH, "d")
    assert "_kept_1_0.append(d.entry(out, 1, row))" in text
    assert "d.fill(out, 1, _over_1, _kept_1_0)" in text
    found = recurrence("for t in range(n):\n    out[:, t] = out[:, t - 1]", {"out"}, {"out"})
    assert (found.filled, found.carried) == ([], ["out"])


def test_a_name_that_may_not_be_set_is_said_to_be_unset():
    text = "for t in range(n):\n    h = h + x[t]"
    assert "UNSET" in recurrence(text).text("over")
    assert "UNSET" not in recurrence(text, (), {"h"}).text("over")


class Steps(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(3, 3)

    def forward(self, x, m):
        h = torch.zeros_like(x[:, 0])
        ys = []
        for t in range(x.shape[1]):
            u = self.linear(x[:, t])
            h = torch.tanh(u + h) + m[t]
            ys.append(h)
        return torch.stack(ys, dim=1), h


class Fewer(torch.nn.Module):
    """Takes fewer slices than there are, of the longer of two tensors."""

    def forward(self, x, y):
        h = torch.zeros(3)
        for t in range(x.shape[0] - 1):
            h = torch.tanh(h + x[t])
        ys = []
        for t in range(x.shape[0]):
            h = torch.tanh(h + y[t])
            ys.append(h)
        return torch.stack(ys), h


class Rows(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.ModuleList(torch.nn.Linear(3, 3) for _ in range(2))

    def forward(self, x):
        h = torch.zeros(3)
        last = torch.zeros(3)
        ys = []
        for row in x:
            step = row - last
            row = row * 2  # noqa: PLW2901  (what it is set to is local)
            h = torch.tanh(h + row) + step
            last = row / 2
            ys.append(h)
        for layer in self.layers:
            h = layer(h)
        return torch.stack(ys), h, last, x


class Numbered(torch.nn.Module):
    """Takes slices of a second tensor by the number of the row, and of the first again."""

    def forward(self, x, m):
        y = x.transpose(0, 1)
        h = torch.zeros_like(y[0])
        ys = []
        for t, row in enumerate(y):
            h = torch.tanh(h + row) * m[:, t] + y[t]
            ys.append(h * 2)
        return torch.stack(ys, -1), h


class Later(torch.nn.Module):
    """Begins at another step than the first."""

    def forward(self, x, y):
        h = x[0]
        ds = []
        for t in range(1, len(x)):
            h = h * 0.5 + x[t]
            ds.append(h)
        k = y.shape[0]
        for t in range(k - 1, x.shape[0]):
            h = torch.tanh(h + x[t])
        return torch.stack(ds), h


class Decides(torch.nn.Module):
    """Has ifs and a while within a loop."""

    def forward(self, x):
        h = torch.zeros(3)
        for row in x:
            n = h
            while n.sum() > 1:
                n = n / 2
            step = -row * 2
            if row.sum() > 0:
                step = row
            h = n + (step if n.sum() > 0.5 else step * 3)
        return h


class Lists(torch.nn.Module):
    """What a loop runs over is no tensor, or one whose size is known."""

    def forward(self, x):
        parts = [x, x * 2]
        h = torch.zeros(3)
        for part in parts:
            h = h + part.sum(0)
        for n, column in enumerate(parts):
            h = h + column[0] * parts[n][0]
        y = x.movedim(1, 0)
        for column in y:
            h = h * column.sum()
        return h


LOOPS = {
    Fewer: [(torch.randn(n, 3), torch.randn(2 * n, 3)) for n in (4, 2, 3)],
    Rows: [(torch.randn(n, 3),) for n in (4, 2, 3, 1)],
    Numbered: [(torch.randn(b, t, 3), torch.rand(3, t)) for b, t in ((2, 4), (3, 7), (1, 1))],
    Later: [
        (torch.randn(n, 3), torch.randn(k)) for n, k in ((5, 3), (4, 2), (2, 1), (2, 2), (9, 9))
    ],
    Decides: [(torch.randn(n, 3),) for n in (4, 9, 2, 1)],
    Lists: [(torch.randn(n, 3),) for n in (4, 2, 1)],
    Steps: [(torch.randn(b, t, 3), torch.rand(t)) for b, t in ((2, 4), (3, 7), (1, 1))],
}


@pytest.mark.sample(3)
@pytest.mark.parametrize("make", LOOPS, ids=lambda make: make.__name__)
def test_loops_are_captured_and_right_at_every_size(make, captured):
    torch.manual_seed(0)
    found = captured(make(), LOOPS[make], rewrite=True)
    scans = sum("scan" in str(node.target) for node in found.program.graph.nodes)
    assert bool(scans) is (make is not Lists)


@pytest.mark.parametrize("make", LOOPS, ids=lambda make: make.__name__)
def test_rewritten_loops_run_in_eager_as_before(make):
    model = make()
    with torch.no_grad():
        wants = [model(*one) for one in LOOPS[make]]
        with rewritten(model) as rewriting:
            for one, want in zip(LOOPS[make], wants, strict=True):
                torch.testing.assert_close(model(*one), want)
    assert ".loop(" in rewriting.diff


def test_a_range_without_steps_is_right_or_refused(captured):
    class FromTheSecond(torch.nn.Module):
        def forward(self, x):
            h = x[0]
            for t in range(1, x.shape[0]):
                h = h * 0.5 + x[t]
            return h

    model = FromTheSecond()
    found = captured(model, [(torch.randn(n, 3),) for n in (4, 3, 2)], rewrite=True)
    row = torch.randn(1, 3)
    try:
        value = found.program.module()(x=row)
    except AssertionError as error:
        assert "Guard failed" in str(error)  # noqa: PT017  # torch up to 2.13 has no empty scan
    else:
        torch.testing.assert_close(value, row[0])


def test_a_row_that_is_written_to_under_another_name_is_never_wrong():
    class Writes(torch.nn.Module):
        def forward(self, x):
            h = torch.zeros(3)
            for row in x:
                y = row
                y += 1
                h = torch.tanh(h + y)
            return h, x

    seen = Observation.from_inputs(Writes(), [(torch.ones(n, 3),) for n in (2, 4)])
    found = capture(Writes(), seen, rewrite=True)
    assert [one.size for one in found.fixed] == [2]
    assert "is read under another name" in "".join(found.declined)
    for n in (2, 4, 1):
        wanted, _ = Writes()(torch.ones(n, 3))
        result, refused = attempt(found, torch.ones(n, 3))
        assert (n == 2) == (refused is None)
        if refused is None:
            torch.testing.assert_close(result[0], wanted)
