"""Random graphs compute the same before and after; so do the test models of onnx itself."""

from __future__ import annotations

import warnings

import numpy as np
import onnx_ir as ir
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from onnx.backend.test.case.node import collect_testcases
from onnx.backend.test.case.test_case import TestCase
from onnxruntime.capi import onnxruntime_pybind11_state as state
from rewriting import HEAD, run

from torchferry.optimizer import OptimizationOptions

UNARY = ("Neg", "Relu", "Identity", "Abs", "Sigmoid")
BINARY = ("Add", "Mul", "Sub", "Max")
VECTORS = {"c0": 0.0, "c1": 1.0, "c2": 2.5}
NODATA = (
    "s = Shape(x) k0 = Constant<value_ints=[0]>() k1 = Constant<value_ints=[1]>() "
    "k3 = Constant<value_ints=[-1]>() far = Constant<value_ints=[9223372036854775807]>() "
) + " ".join(f"{name} = Constant<value_float={value}>()" for name, value in VECTORS.items())


@st.composite
def graphs(draw: st.DrawFn) -> str:
    """A graph of a dozen nodes over [a, b] values, some of them kept as outputs."""
    values, body = ["x", "z"], [NODATA]
    for number in range(draw(st.integers(3, 14))):
        pick = st.sampled_from(values)
        name, value, other = f"v{number}", draw(pick), draw(pick)
        kinds = ("unary", "binary", "scalar", "twice", "shape", "parts", "where", "move", "cast")
        match draw(st.sampled_from(kinds)):
            case "unary":
                body.append(f"{name} = {draw(st.sampled_from(UNARY))}({value})")
            case "binary":
                body.append(f"{name} = {draw(st.sampled_from(BINARY))}({value}, {other})")
            case "scalar":
                constant = draw(st.sampled_from(sorted(VECTORS)))
                operator = draw(st.sampled_from(("Add", "Mul", "Sub")))
                pair = draw(st.permutations([value, constant]))
                body.append(f"{name} = {operator}({', '.join(pair)})")
            case "twice":
                body.append(f"{name}t = Neg({value}) {name} = Neg({name}t)")
            case "shape":
                body.append(
                    f"{name}s = Shape({other}) {name}r = Unsqueeze({value}, k1) "
                    f"{name} = Reshape({name}r, {name}s)"
                )
            case "parts":
                body.append(
                    f"{name}a = Slice({value}, k0, k1, k1) {name}b = Slice({value}, k1, far, k1) "
                    f"{name} = Concat<axis=1>({name}a, {name}b)"
                )
            case "where":
                body.append(
                    f"{name}c = Less({value}, {other}) {name}n = Not({name}c) "
                    f"{name} = Where({name}n, {value}, {other})"
                )
            case "move":
                body.append(
                    f"{name}t = Transpose<perm=[1,0]>({value}) {name}e = Expand({name}t, k1) "
                    f"{name} = Transpose<perm=[1,0]>({name}e)"
                )
            case "cast":
                body.append(f"{name}d = Cast<to=11>({value}) {name} = Cast<to=1>({name}d)")
        values.append(name)
    outputs = draw(st.lists(st.sampled_from(values[2:]), min_size=1, max_size=4, unique=True))
    if values[-1] not in outputs:
        outputs.append(values[-1])
    declared = ", ".join(f"float[a,b] {name}" for name in outputs)
    return f"g (float[a,b] x, float[a,b] z) => ({declared}) {{ {' '.join(body)} }}"


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(graphs(), st.sampled_from([(2, 3), (1, 1), (0, 4), (3, 1)]), st.integers(0, 99))
def test_random_graphs(text: str, shape: tuple[int, int], seed: int) -> None:
    before, after = (ir.from_onnx_text(HEAD.format(opset=20) + text) for _ in range(2))
    options = OptimizationOptions("default", verifies=True)
    options.apply(after)
    random = np.random.default_rng(seed)
    feeds = {name: random.normal(size=shape).astype(np.float32) for name in ("x", "z")}
    for want, got in zip(run(before, feeds), run(after, feeds), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)
    count = len(after.graph)
    options.apply(after)
    assert len(after.graph) == count


@pytest.fixture(scope="module")
def cases() -> list[TestCase]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # onnx's own, while it makes the data
        return list(collect_testcases(None))


@pytest.mark.slow
def test_the_models_that_test_backends(cases: list[TestCase]) -> None:
    assert len(cases) > 1000
    assert sum(same_as_before(case) for case in cases) > 900


REFUSALS = (
    state.Fail,
    state.InvalidArgument,
    state.InvalidGraph,
    state.NotImplemented,
    state.RuntimeException,
)
SETS = ("default", "default+onnxruntime")
RANDOM = {"Bernoulli", "Dropout", "Multinomial", "RandomNormalLike", "RandomUniformLike"}


def same_as_before(case: TestCase) -> bool:
    """Whether onnxruntime runs the model as it is; then it must give the same afterwards."""
    proto = case.model
    models = [ir.from_proto(proto) for _ in SETS]
    for patterns, model in zip(SETS, models, strict=True):
        OptimizationOptions(patterns).apply(model)
    inputs = case.data_sets[0][0]
    feeds = {v.name: x for v, x in zip(proto.graph.input, inputs, strict=True)}
    if any(node.op_type in RANDOM for node in proto.graph.node):
        return False
    try:
        wanted = run(ir.from_proto(proto), feeds)
    except (RuntimeError, ValueError, TypeError, NotImplementedError, *REFUSALS):
        return False  # what onnxruntime cannot run
    for model in models:
        for want, got in zip(wanted, run(model, feeds), strict=True):
            if isinstance(want, np.ndarray) and want.dtype.kind in "fiub":
                tolerance = 2e-3 if want.dtype == np.float16 else 1e-5
                np.testing.assert_allclose(got, want, tolerance, tolerance, err_msg=case.name)
    return True
