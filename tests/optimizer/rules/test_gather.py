"""A gathering of everything is found; one that repeats, cuts or mixes is not."""

from __future__ import annotations

import re

import pytest
from rewriting import changes, keeps

from torchferry.optimizer.rules.gather import RULES

START = """
  g (float[a,b] x) => (float[a,1,1,b] y) {
  n0 = Shape<start=0, end=1>(x) n1 = Shape<start=1, end=2>(x)
  zero = Constant<value_int=0>() one = Constant<value_int=1>() axis0 = Constant<value_ints=[0]>()
  e0 = Squeeze(n0, axis0) e1 = Squeeze(n1, axis0)
  r0 = Range(zero, e0, one) r1 = Range(zero, e1, one)
  new0 = Constant<value_ints=[1,2,3]>() new1 = Constant<value_ints=[0,1,2]>()
  last = Constant<value_ints=[-1]>()
  u0 = Unsqueeze(r0, new0) u1 = Unsqueeze(r1, new1)
  ones = Constant<value_ints=[1,1,1]>()
  t0 = Concat<axis=0>(ones, n1) t1 = Concat<axis=0>(n0, ones)
  x0 = Expand(u0, t0) x1 = Expand(u1, t1)
"""
POSITIONS = "p0 = Unsqueeze(x0, last) p1 = Unsqueeze(x1, last) p = Concat<axis=-1>(p0, p1) "
TEXT = START + POSITIONS + "y = GatherND(x, p) }"


def test_everything_in_order_is_what_it_was():
    changes(RULES, TEXT, "g (float[a,b] x) => (float[a,1,1,b] y) { "
            "i = Constant<value_ints=[1,2]>() y = Unsqueeze(x, i) }")  # fmt: skip


def test_without_new_axes_nothing_is_left():
    text = TEXT.replace("float[a,1,1,b] y", "float[a,b] y")
    text = text.replace("[1,2,3]", "[1]").replace("[0,1,2]", "[0]").replace("[1,1,1]", "[1]")
    changes(RULES, text, "g (float[a,b] x) => (float[a,b] y) { y = Identity(x) }")


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ("r0 = Range(zero, e0, one)", "r0 = Range(one, e0, one)", "count up"),
        ("r0 = Range(zero, e0, one)", "e2 = Add(e0, one) r0 = Range(zero, e2, one)", "count up"),
        ("Concat<axis=-1>(p0, p1)", "Concat<axis=-1>(p1, p0)", "count up"),
        ("u0 = Unsqueeze(r0, new0)", "f0 = Neg(r0) u0 = Unsqueeze(f0, new0)", "not counted"),
    ],
)
def test_other_positions_stay(old, new, reason):
    assert old in TEXT
    keeps(RULES, TEXT.replace(old, new), reason)


def test_positions_that_are_repeated_stay():
    text = TEXT.replace("ones = Constant<value_ints=[1,1,1]>()",
                        "ones = Constant<value_ints=[1,1,4]>()")  # fmt: skip
    text = text.replace("Concat<axis=0>(n0, ones)", "Concat<axis=0>(n0, four)")
    text = text.replace("t1 =", "four = Constant<value_ints=[1,4,1]>() t1 =")
    keeps(RULES, text.replace("float[a,1,1,b] y", "float[a,1,4,b] y"), "repeated")


def test_swapped_axes_stay():
    swapped = {"[1,2,3]": "[0,1,2]", "[0,1,2]": "[1,2,3]", "(ones, n1)": "(n1, ones)",
               "(n0, ones)": "(ones, n0)", "[a,1,1,b] y": "[b,1,1,a] y"}  # fmt: skip
    text = re.sub("|".join(map(re.escape, swapped)), lambda found: swapped[found[0]], TEXT)
    keeps(RULES, text, "change places")


def test_within_a_batch_it_is_another_gathering():
    text = """g (float[a,b] x, int64[a,1] p) => (float[a] y) {
      q = Concat<axis=-1>(p) y = GatherND<batch_dims=1>(x, q) }"""
    keeps(RULES, text, "within a batch")
