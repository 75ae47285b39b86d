import inspect

import pytest
import torch

from torchferry.capturer import capture
from torchferry.capturer.state.state import Change, watch_state, written_buffers
from torchferry.observer import Observation


class Counts(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.n = 0

    def forward(self, x):
        self.n += 1
        return x * self.n


class Remembers(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.last = None

    def forward(self, x):
        y = x if self.last is None else x + self.last
        self.last = y
        return y


class Collects(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.history = []

    def forward(self, x):
        self.history.append(1)
        return x * len(self.history)


class Shows(torch.nn.Module):
    """Sets what it does not read, and reads what it has just set."""

    def __init__(self):
        super().__init__()
        self.scores = None
        self.length = 0
        self.total = torch.zeros(1)

    def forward(self, x):
        self.scores = x * 2
        self.length = x.shape[0]
        self.total = x.sum()
        return x + self.total


class Buffers(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("seen", torch.zeros(()))

    def forward(self, x):
        self.seen += 1
        return x + self.seen


X = torch.ones(3)


@pytest.mark.parametrize(
    ("make", "want"),
    [
        (Counts, Change("n", "0", "1")),
        (Remembers, Change("last", "None", "a tensor of shape (3,)")),
        (Collects, Change("history", "0", "1")),
    ],
)
def test_what_goes_on_from_call_to_call(make, want):
    model = make()
    with watch_state(model) as changes:
        model(X)
    assert changes == [want]
    inner = torch.nn.Sequential(torch.nn.ReLU(), make())
    with watch_state(inner) as changes:
        inner(X)
    assert [one.name for one in changes] == [f"1.{want.name}"]


class Fills(torch.nn.Module):
    """A number that is none is the same number afterwards."""

    def __init__(self):
        super().__init__()
        self.fill = float("nan")

    def forward(self, x):
        return x.masked_fill(x > 2, self.fill)


@pytest.mark.parametrize("make", [Shows, Buffers, Fills, lambda: torch.nn.LSTM(3, 3)])
def test_what_does_not(make):
    model = make()
    with watch_state(model) as changes:
        model(X if not isinstance(model, torch.nn.LSTM) else X.reshape(1, 3))
    assert changes == []


def test_a_change_is_told_with_what_to_do():
    text = str(Change("encoder.n", "0", "1"))
    assert "self.encoder.n from 0 to 1" in text
    assert "register it as a buffer" in text


def test_buffers_that_a_program_writes_to():
    program = torch.export.export(Buffers(), (X,))
    assert written_buffers(program) == {"seen"}
    # A write to what is no buffer is none.
    assert written_buffers(torch.export.export(torch.nn.ReLU(inplace=True), (X,))) == set()


class Child(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.shape, self.items, self.flag, self.k = None, [], True, 0

    @property
    def rows(self):
        return self.k


class Parent(torch.nn.Module):
    """Each way is a body of forward."""

    count = 0

    def __init__(self, way):
        super().__init__()
        self.child, self.way = Child(), way
        self.grid, self.cached, self.n, self.table = torch.zeros(1), None, 0, {}

    def forward(self, x):
        return self.way(self, x)


def grid(m, x):
    m.grid = x * 2
    m.shape = x.shape
    return x + m.grid + len(m.shape)


def nested(m, x):
    m.child.k = x.shape[0]
    m.child.items = [x]
    return x * m.child.rows + m.child.items[0]


def both_branches(m, x):
    if m.child.flag:
        m.n = 3
    else:
        m.n = 4
    return x * m.n


def whole_table(m, x):
    m.table = {"a": x, "b": x}
    m.table["c"] = x
    return m.table["a"]


def by_setattr(m, x):
    setattr(m, "n", 5)  # noqa: B010  (one of the spellings)
    return x * getattr(m, "n")  # noqa: B009  (one of the spellings)


SET_FIRST = [grid, nested, both_branches, whole_table, by_setattr]


def counts(m, x):
    m.n += 1  # reads
    return x * m.n


def cache(m, x):
    if m.cached is None or m.cached.shape != x.shape:  # reads
        m.cached = x * 2
    return m.cached


def has(m, x):
    if not hasattr(m, "late"):  # reads
        m.late = x * 2
    return m.late


def one_branch(m, x):
    if x.shape[0] > 100:
        m.grid = x
    y = x + m.grid  # reads
    m.grid = y
    return y


def class_attribute(m, x):
    m.count += 1  # reads
    return x * m.count


def appends(m, x):
    m.child.items.append(1)  # reads
    return x


def table_grows(m, x):
    m.table[len(m.table)] = x  # reads
    return x


def nested_counts(m, x):
    y = x * m.child.rows
    m.child.k = m.child.k + 1
    return y


READ_FIRST = {
    counts: "n", cache: "cached", has: "late", one_branch: "grid", class_attribute: "count",
    appends: "child.items", table_grows: "table",
}  # fmt: skip


@pytest.mark.parametrize("way", SET_FIRST)
def test_what_every_call_sets_before_it_reads_it_is_no_state(way):
    model = Parent(way)
    for _ in range(2):
        with watch_state(model) as changes:
            model(X)
        assert changes == []
    seen = Observation.from_inputs(model, [(torch.ones(n),) for n in (3, 5)])
    assert capture(Parent(way), seen).changed == ()


@pytest.mark.parametrize("way", READ_FIRST)
def test_what_is_read_first_is_state_by_name_and_line(way):
    model = Parent(way)
    with watch_state(model) as changes:
        model(X)
    (change,) = changes
    assert change.name == READ_FIRST[way]
    lines, first = inspect.getsourcelines(way)
    number = next(n for n, text in enumerate(lines, first) if text.rstrip().endswith("# reads"))
    assert change.line.startswith(f"{__file__}:{number}: ")
    assert change.line in str(change)


def test_a_property_that_reads_is_the_line():
    model = Parent(nested_counts)
    with watch_state(model) as changes:
        model(X)
    assert [one.line for one in changes] == [
        f"{__file__}:{inspect.getsourcelines(Child.rows.fget)[1] + 2}: return self.k"
    ]


def test_classes_are_as_before_afterwards():
    model = Parent(counts)
    before = dict(vars(Parent)), dict(vars(Child)), dict(vars(torch.nn.ReLU))
    with (
        pytest.raises(ZeroDivisionError),
        watch_state(torch.nn.Sequential(model, torch.nn.ReLU())),
    ):
        raise ZeroDivisionError
    assert (dict(vars(Parent)), dict(vars(Child)), dict(vars(torch.nn.ReLU))) == before


class Keeps(torch.nn.Module):
    """Sets a grid in every call, and counts its calls if asked to."""

    grid = torch.empty(0)

    def __init__(self, counts):
        super().__init__()
        self.counts, self.calls = counts, 0

    def forward(self, x):
        self.grid = torch.arange(x.shape[0]).float()
        if self.counts:
            self.calls += 1
        return x + self.grid * self.calls


@pytest.mark.parametrize(("counts", "want"), [(False, []), (True, ["1.calls"])])
def test_modules_that_a_trace_puts_others_in_place_of(counts, want):
    shared = torch.nn.ReLU()  # torch.export traces proxies of all modules where some are shared
    model = torch.nn.Sequential(shared, Keeps(counts), shared)
    seen = Observation.from_inputs(model, [(torch.ones(n),) for n in (3, 5)])
    changed = capture(model, seen).changed
    assert [one.name for one in changed] == want
    assert all("self.calls += 1" in one.line for one in changed)
