from __future__ import annotations

import re

import pytest
from rewriting import parse

from torchferry.optimizer.kernels.runs import find_runs
from torchferry.optimizer.kernels.source import Kernel, kernel_of, library_source


def kernel(body: str, signature: str = "float[a,8] x, float[8] w, float[a,1] m") -> Kernel:
    (run,) = find_runs(parse(f"g ({signature}) => (float[a,8] z) {{ {body} }}").graph)
    return kernel_of(run)


def test_equal_runs_have_one_name() -> None:
    first = kernel("s = Exp(x) z = Neg(s)")
    assert first == kernel("other = Exp(x) z = Neg(other)", "float[a,8] x")
    assert first.name != kernel("s = Exp(x) z = Tanh(s)").name
    assert re.fullmatch(r"ExpNeg_[0-9a-f]{12}", first.name)
    long = kernel("s = Exp(x) t = Neg(s) u = Abs(t) v = Tanh(u) z = Neg(v)")
    assert long.name.startswith("ExpNegAbsTanhEtc_")


@pytest.mark.parametrize(
    ("body", "signature", "vector"),
    [
        ("s = Add(x, w) z = Mul(s, m)", "float[a,8] x, float[8] w, float[a,1] m", "1, 1, 0"),
        ("s = Add(x, w) z = Exp(s)", "float[a,8] x, float[1,1] w", "1, 0"),
        # axes of one are passed over, and those that all go through become one
        ("s = Add(x, w) z = Exp(s)", "float[a,8] x, float[a,8] w", "1, 1"),
        ("s = Add(x, w) z = Exp(s)", "float[1,8] x, float[a,8] w", "1, 1"),
    ],
)
def test_inputs_that_are_broadcast(body: str, signature: str, vector: str) -> None:
    text = kernel(body, signature).text
    assert f".vector = (const unsigned char[]){{{vector}}}" in text


def test_a_library_does_not_depend_on_the_order() -> None:
    a, b = kernel("s = Exp(x) z = Neg(s)"), kernel("s = Tanh(x) z = Neg(s)")
    assert library_source([a, b]) == library_source([b, a, a])
    assert library_source([a, b]).count("_body,") == 2
