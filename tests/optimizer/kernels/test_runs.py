from __future__ import annotations

import pytest
from rewriting import parse

from torchferry.optimizer.kernels.runs import Run, find_runs

SIGNATURE = "g (float[a,b,8] x, float[a,b,8] y, float[8] w, float[a,1,1] m, float[a,8,8] r)"


def runs(body: str, outputs: str = "float[a,b,8] z") -> list[Run]:
    return find_runs(parse(f"{SIGNATURE} => ({outputs}) {{ {body} }}").graph)


def described(found: list[Run]) -> list[tuple[str, str]]:
    return [
        (" ".join(n.op_type for n in run.nodes), " ".join(str(v.name) for v in run.inputs))
        for run in found
    ]


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("s = Sigmoid(x) g = Mul(s, x) z = Mul(g, y)", [("Sigmoid Mul Mul", "x y")]),
        ("s = Add(x, w) z = Mul(s, m)", [("Add Mul", "x w m")]),
        ("z = Add(x, w)", []),  # one operator is what onnxruntime has a kernel for
        ("s = Exp(x) t = Softmax(s) u = Tanh(t) z = Neg(u)", [("Tanh Neg", "t")]),
        # a number stands in the kernel; a vector is given to it
        ("c = Constant<value = float {2.0}>() s = Mul(x, c) z = Exp(s)", [("Mul Exp", "x")]),
        # the product and its constant bias become one Gemm
        (
            """k = Constant<value = float[8] {1,2,3,4,5,6,7,8}>() p = MatMul(x, r)
            s = Add(p, k) t = Exp(s) z = Neg(t)""",
            [("Exp Neg", "s")],
        ),
        # what is costly is not computed again for every element that it is broadcast to
        ("s = Neg(w) t = Mul(x, s) z = Exp(t)", [("Neg Mul Exp", "w x")]),
        ("s = Exp(w) t = Mul(x, s) z = Exp(t)", [("Mul Exp", "x s")]),
        # the result would have fewer axes than the run
        ("s = Exp(w) t = Neg(s) z = MatMul(x, r)", [("Exp Neg", "w")]),
    ],
)
def test_what_becomes_a_kernel(body: str, expected: list[tuple[str, str]]) -> None:
    assert described(runs(body)) == expected


def test_a_value_that_others_read_ends_a_run() -> None:
    body = "s = Exp(x) t = Neg(s) u = Tanh(t) z = Mul(u, x) q = Softmax(t)"
    found = described(runs(body, "float[a,b,8] z, float[a,b,8] q"))
    assert found == [("Exp Neg", "x"), ("Tanh Mul", "t x")]
    found = described(runs("s = Exp(x) z = Neg(s)", "float[a,b,8] z, float[a,b,8] s"))
    assert found == []


def test_a_value_read_twice_inside_stays_inside() -> None:
    (run,) = runs("s = Exp(x) t = Neg(s) u = Tanh(s) z = Mul(t, u)")
    assert described([run]) == [("Exp Neg Tanh Mul", "x")]
    assert run.output.name == "z"


def test_sizes_are_left_to_onnxruntime() -> None:
    text = """g (float[a,b] x) => (int64[2] z) { s = Shape(x) d = Add(s, s) e = Mul(d, s)
        z = Neg(e) }"""
    assert find_runs(parse(text).graph) == []


def test_what_stands_at_a_convolution_is_left_to_onnxruntime() -> None:
    text = """g (float[a,3,h,h] x, float[3,3,1,1] k) => (float[a,3,h,h] z)
        { c = Conv(x, k) s = Sigmoid(c) z = Mul(c, s) }"""
    assert find_runs(parse(text).graph) == []


def test_unknown_ranks_and_many_axes_are_left_alone() -> None:
    text = (
        "g (float[1,1,1,1,1,1,1,1,n] x) => (float[1,1,1,1,1,1,1,1,n] z) { s = Exp(x) z = Neg(s) }"
    )
    assert find_runs(parse(text).graph) == []
    model = parse(f"{SIGNATURE} => (float[a,b,8] z) {{ s = Exp(x) z = Neg(s) }}")
    model.graph[0].outputs[0].shape = None
    assert find_runs(model.graph) == []


def test_a_run_has_so_many_inputs_and_no_more() -> None:
    names = [f"x{i}" for i in range(20)]
    given = ", ".join(f"float[n] {name}" for name in names)
    sums = [f"s{i} = Add({'x0' if i == 1 else f's{i - 1}'}, x{i})" for i in range(1, 20)]
    model = parse(f"g ({given}) => (float[n] s19) {{ {' '.join(sums)} }}")
    found = find_runs(model.graph)
    assert sum(len(run.nodes) for run in found) == 19
    assert max(len(run.inputs) for run in found) == 16
