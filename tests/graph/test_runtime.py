"""The table of kernels against the installed onnxruntime: run this on every version."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable

import numpy as np
import onnx_ir as ir
import onnxruntime
import pytest

from torchferry.errors import UsageError
from torchferry.graph import runtime
from torchferry.graph.runtime import (
    DOUBLE_COSINES,
    DOUBLE_NORMS,
    DOUBLE_PRODUCTS,
    DOUBLE_SILU,
    EMPTY_HEADS,
    EMPTY_TENSORS,
    HIDDEN_ROWS,
    LEAST_KEY,
    NAN_ERF,
    OLDEST,
    Ability,
    check_version,
    has,
    installed,
    newest_opset,
    store_least,
    too_old,
)

HEAD = '<ir_version: {ir}, opset_import: ["" : {opset}, "com.microsoft" : 1]>\ng '


def loaded(text: str, opset: int = 23, version: int = 10) -> onnxruntime.InferenceSession:
    model = ir.from_onnx_text(HEAD.format(opset=opset, ir=version) + text)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    return onnxruntime.InferenceSession(
        ir.to_proto(model).SerializeToString(), options, providers=["CPUExecutionProvider"]
    )


def random(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).normal(size=shape).astype(np.float32)


def makes_zeros() -> bool:
    text = "(float[a,h,q,d] x, float[a,h,k,d] y, bool[q,k] m) => (float[a,h,q,d] z)"
    mask = np.array([[True, False, True], [False, False, False]])
    feeds = {"x": random(2, 2, 2, 8), "y": random(2, 2, 3, 8), "m": mask}
    (by_bool,) = loaded(text + "{ z = Attention(x, y, y, m) }").run(None, feeds)
    feeds["m"] = np.where(mask, 0, -np.inf).astype(np.float32)
    text = text.replace("bool", "float") + "{ z = Attention(x, y, y, m) }"
    (added,) = loaded(text).run(None, feeds)
    return bool((added[:, :, 1] == 0).all() and (by_bool[:, :, 1] == 0).all())


def keeps_nan_in_erf() -> bool:
    numbers = np.array([np.nan, np.inf, -np.inf, 0.0], np.float32)
    (found,) = loaded("(float[n] x) => (float[n] y) { y = Erf(x) }").run(None, {"x": numbers})
    assert found[1:].tolist() == [1.0, -1.0, 0.0]
    return bool(np.isnan(found[0]))


def reduces_nothing() -> bool:
    text = "(float[n,m] x) => (float[n,k] y) { a = Constant<value_ints=[-1]>() "
    (found,) = loaded(text + "y = ReduceSum(x, a) }").run(None, {"x": random(0, 5)})
    return bool(found.shape == (0, 1))


EMPTY = """import numpy as np, onnxruntime, onnx
text = '''<ir_version: 10, opset_import: ["" : 20, "com.microsoft" : 1]>
g (float[b,s,32] q) => (float[b,s,32] y) {
  y = com.microsoft.MultiHeadAttention<num_heads=4>(q, q, q) }'''
model = onnx.parser.parse_model(text).SerializeToString()
session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
for shape in ((0, 2, 32), (2, 0, 32)):
    assert session.run(None, {"q": np.zeros(shape, np.float32)})[0].shape == shape
"""


def runs_doubles(body: str) -> bool:
    text = "(double[a,b] x, double[c,b] y) => (double[a,c] z) { " + body + " }"
    try:
        loaded(text, 20)
    except onnxruntime.capi.onnxruntime_pybind11_state.NotImplemented:
        return False
    return True


def fuses_silu_of_doubles() -> bool:
    return runs_doubles("s = Sigmoid(x) z = Mul(x, s)")


def keeps_norms_of_doubles() -> bool:
    text = "(double[a,4] x, double[4] w) => (double[a,4] y) { two = Constant<value=double{2.0}>() "
    text += "e = Constant<value=double{1e-6}>() last = Constant<value_ints=[-1]>() "
    text += "q = Pow(x, two) m = ReduceMean(q, last) s = Add(m, e) r = Sqrt(s) n = Div(x, r) "
    x, w = random(2, 4).astype(np.float64), random(4).astype(np.float64)
    (found,) = loaded(text + "y = Mul(n, w) }", 20).run(None, {"x": x, "w": w})
    want = x / np.sqrt((x**2).mean(-1, keepdims=True) + 1e-6) * w
    return bool(np.allclose(found, want, rtol=1e-10, atol=1e-10))


def fuses_products_of_doubles() -> bool:
    return runs_doubles("t = Transpose<perm=[1,0]>(y) z = MatMul(x, t)")


def survives_size_0() -> bool:
    done = subprocess.run([sys.executable, "-c", EMPTY], capture_output=True, check=False)
    assert done.returncode <= 0, done.stderr.decode()[-500:]  # by a signal, or not at all
    return done.returncode == 0


def has_cosines_of_doubles() -> bool:
    return runs_doubles("z = Cos(x)")


KERNELS = {
    has_cosines_of_doubles: DOUBLE_COSINES,
    makes_zeros: HIDDEN_ROWS,
    keeps_nan_in_erf: NAN_ERF,
    reduces_nothing: EMPTY_TENSORS,
    fuses_silu_of_doubles: DOUBLE_SILU,
    keeps_norms_of_doubles: DOUBLE_NORMS,
    fuses_products_of_doubles: DOUBLE_PRODUCTS,
    survives_size_0: EMPTY_HEADS,
}


@pytest.mark.parametrize(
    ("probe", "ability"), KERNELS.items(), ids=lambda x: getattr(x, "__name__", "")
)
def test_the_table_says_what_the_installed_kernels_do(
    probe: Callable[[], bool], ability: Ability
) -> None:
    assert probe() is has(installed(), ability)


def test_every_ability_is_probed() -> None:
    named = {value for value in vars(runtime).values() if isinstance(value, Ability)}
    assert named == set(KERNELS.values())


def test_the_newest_opset_and_format_are_read() -> None:
    newest = newest_opset(installed())
    text = "(float[n] x) => (float[n] y) { y = Relu(x) }"
    assert loaded(text, newest).run(None, {"x": random(3)})
    with pytest.raises(Exception, match="opset"):
        loaded(text, newest + 1)
    assert loaded(text, 20, 13).run(None, {"x": random(3)})
    if not has(installed(), EMPTY_TENSORS):  # 1.32 is also the first that reads IR 14
        with pytest.raises(Exception, match="IR version"):
            loaded(text, 20, 14)


def model(opset: int = 20, version: int = 10) -> ir.Model:
    return ir.from_onnx_text(
        HEAD.format(opset=opset, ir=version) + "(float[n] x) => (float[n] y) { y = Relu(x) }"
    )


@pytest.mark.parametrize(
    ("opset", "version", "abilities", "least"),
    [
        (20, 10, (), OLDEST),
        (26, 13, (), OLDEST),
        (27, 10, (), "1.32"),
        (20, 14, (), "1.32"),
        (23, 11, (NAN_ERF, HIDDEN_ROWS), "1.28"),
    ],
)
def test_the_least_version(
    opset: int, version: int, abilities: tuple[Ability, ...], least: str
) -> None:
    made = model(opset, version)
    assert store_least(made, abilities) == least == made.metadata_props[LEAST_KEY]
    assert store_least(made) == least  # it stays


def test_versions_are_numbers_not_text() -> None:
    assert has("1.100.0", HIDDEN_ROWS)
    assert not has("1.9", HIDDEN_ROWS)
    assert newest_opset("1.100") == newest_opset("1.32") > newest_opset("1.25.1")


def test_check_version() -> None:
    assert check_version(None) == installed() == onnxruntime.__version__
    assert check_version("1.28.0") == "1.28.0"
    for wrong in ("", "1", "one", "1.28; rm", "0.9", "1.24.4"):
        with pytest.raises(UsageError):
            check_version(wrong)


def test_too_old() -> None:
    assert too_old("m.onnx", None) == too_old("m.onnx", "") == too_old("m.onnx", OLDEST) == ""
    said = too_old("m.onnx", "1.99")
    assert "m.onnx needs onnxruntime 1.99 or newer" in said
    assert installed() in said
    assert "pip install 'onnxruntime>=1.99'" in said
