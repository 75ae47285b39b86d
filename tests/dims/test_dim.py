import pytest
from hypothesis import given
from hypothesis import strategies as st

from torchferry.dims.dim import Dim, evaluate, maximum, minimum, names_in, substitute

NAMES = ("batch", "past", "seq")
VALUES = st.fixed_dictionaries({n: st.integers(0, 40) for n in NAMES})


def expressions():
    leaves = st.sampled_from([Dim.of(n) for n in NAMES]) | st.integers(-5, 5)
    operators = st.sampled_from(["+", "-", "*", "//", "%", "max", "min"])
    return st.recursive(leaves, lambda e: st.tuples(operators, e, e), max_leaves=6)


def build(tree, leaf):
    if not isinstance(tree, tuple):
        return leaf(tree)
    op, a, b = tree[0], build(tree[1], leaf), build(tree[2], leaf)
    if op in ("//", "%") and b == 0:
        return a
    return {
        "+": lambda: a + b,
        "-": lambda: a - b,
        "*": lambda: a * b,
        "//": lambda: a // b,
        "%": lambda: a % b,
        "max": lambda: maximum(a, b),
        "min": lambda: minimum(a, b),
    }[op]()


@given(expressions(), VALUES)
def test_means_what_integers_mean(tree, values):
    symbolic = build(tree, lambda leaf: leaf)
    try:
        got = evaluate(symbolic, values)
    except ZeroDivisionError:
        return  # a divisor that is 0 at these values has no size
    numeric_tree = build_numeric(tree, values)
    if numeric_tree is not None:
        assert got == numeric_tree


def build_numeric(tree, values):
    """The plain integer value; None where the symbolic form kept a division by a zero size."""
    if not isinstance(tree, tuple):
        return evaluate(tree, values)
    op, a, b = tree[0], build_numeric(tree[1], values), build_numeric(tree[2], values)
    if a is None or b is None:
        return None
    if op in ("//", "%"):
        if b == 0:
            return None
        return a // b if op == "//" else a % b
    return {"+": a + b, "-": a - b, "*": a * b, "max": max(a, b), "min": min(a, b)}[op]


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (1 + Dim.of("seq"), "seq + 1"),
        (Dim.of("seq") + Dim.of("past"), "past + seq"),
        (Dim.of("seq") * 3 * Dim.of("batch") - 2, "3*batch*seq - 2"),
        ((Dim.of("seq") + 1) // 2, "(seq + 1)//2"),
        (-Dim.of("a") + Dim.of("b"), "-a + b"),
        (((Dim.of("h") - 1) // 2) * 4 + 1, "4*((h - 1)//2) + 1"),
        (Dim.of("n") % 4, "n % 4"),
    ],
)
def test_prints(size, text):
    assert str(size) == text


def test_equal_expressions_are_equal_and_constants_collapse():
    s, b = Dim.of("seq"), Dim.of("batch")
    assert {s + b, b + s} == {b + s}
    assert s - s + 4 == 4
    assert (s * 2) // 2 == s
    assert (b * s * 64) // 64 == s * b
    assert (b * s) // s == b
    assert (4 * s + 6) // 2 == 2 * s + 3
    assert (4 * s) % 2 == 0
    assert s != "seq"


def test_name_is_that_of_a_single_symbol_only():
    s = Dim.of("seq")
    assert s.name == "seq"
    assert (s + 1).name is None
    assert (2 * s).name is None
    assert (s // 2).name is None


def test_substitute_keeps_unknown_names_and_evaluate_refuses_them():
    size = Dim.of("s0") + Dim.of("s1") // 2
    assert substitute(size, {"s0": Dim.of("a")}) == Dim.of("a") + Dim.of("s1") // 2
    assert names_in(size) == {"s0", "s1"}
    with pytest.raises(KeyError, match="s1"):
        evaluate(size, {"s0": 3})


def test_empty_name_is_refused():
    with pytest.raises(ValueError, match="needs a name"):
        Dim.of("")
