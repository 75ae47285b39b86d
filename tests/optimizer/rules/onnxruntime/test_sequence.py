from __future__ import annotations

import pytest
from rewriting import changes, keeps

from torchferry.optimizer.rules.onnxruntime.sequence import RULES

HEAD = "g (float[a,6] x) => (float[a,m] y) "
NUMBERS = """
    sizes = Constant<value_ints=[2,4]>() two = Constant<value_int=2>()
    first = Constant<value_int=0>() second = Constant<value_int=-1>()
"""
SPLIT = "s = SplitToSequence<axis=1>(x, sizes) "


def test_parts_that_are_picked():
    changes(
        RULES,
        HEAD + "{" + NUMBERS + SPLIT
        + "p = SequenceAt(s, first) q = SequenceAt(s, second) y = Concat<axis=1>(q, p) }",
        HEAD + "{ sizes = Constant<value_ints=[2,4]>() p, q = Split<axis=1>(x, sizes) "
        "y = Concat<axis=1>(q, p) }",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (SPLIT.replace("sizes)", "two)") + "y = SequenceAt(s, first)", "one size"),
        (SPLIT + "n = SequenceLength(s) y0 = SequenceAt(s, first) c = Cast<to=1>(n) "
         "y = Add(y0, c)", "read otherwise"),
        (SPLIT + "y = SequenceAt(s, two)", "no such part"),
    ],
)  # fmt: skip
def test_other_sequences_stay(body, reason):
    keeps(RULES, HEAD + "{" + NUMBERS + body + "}", reason)


def test_a_part_that_a_branch_reads_stays():
    branches = """z = If (c) <
        then_branch = t () => (float[a,2] p) { p = SequenceAt(s, first) },
        else_branch = e () => (float[a,2] r) { r = Constant<value_float=0.0>() } >
    k = SequenceAt(s, second) y = Concat<axis=1>(z, k) }"""
    text = HEAD.replace("x)", "x, bool c)", 1) + "{" + NUMBERS + SPLIT + branches
    keeps(RULES, text, "read in a subgraph")
