"""Sizes are asked of inputs, where their names say that these have them."""

from __future__ import annotations

import pytest
from rewriting import changes, keeps

from torchferry.optimizer.rules.size import RULES


def test_the_size_of_a_result_is_that_of_an_input():
    changes(
        RULES,
        "g (float[a,3,b] x) => (int64[1] n, float[b,3,a] y) "
        "{ y = Transpose<perm=[2,1,0]>(x) n = Shape<start=2, end=3>(y) }",
        "g (float[a,3,b] x) => (int64[1] n, float[b,3,a] y) "
        "{ y = Transpose<perm=[2,1,0]>(x) n = Shape<start=0, end=1>(x) }",
    )


def test_several_sizes_side_by_side():
    changes(
        RULES,
        "g (float[3,a,b] x) => (int64[2] n) { y = ReduceMax<keepdims=0>(x, i) n = Shape(y) }"
        .replace("{", "{ i = Constant<value_ints=[0]>()"),
        "g (float[3,a,b] x) => (int64[2] n) { n = Shape<start=1, end=3>(x) }",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("body", "out", "reason"),
    [
        ("y = Transpose(x) n = Shape(y)", 2, "no input"),
        ("y = Concat<axis=0>(x, x) n = Shape<start=0, end=1>(y)", 1, "no input"),
        ("y = NonZero(x) n = Shape<start=1>(y)", 1, "no input"),
        ("i = Constant<value_ints=[2,3]>() y = Reshape(x, i) n = Shape(y)", 2, "are numbers"),
    ],
)
def test_sizes_that_no_input_has_stay(body, out, reason):
    keeps(RULES, f"g (float[a,b] x) => (int64[{out}] n) {{ {body} }}", reason)


def test_the_shape_of_an_input_stays():
    keeps(RULES, "g (float[a,b] x) => (int64[2] n) { n = Shape(x) }")
