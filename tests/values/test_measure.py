import math

import ml_dtypes
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from torchferry.values import measure as module
from torchferry.values.measure import is_numeric, measure

NAN, INF = float("nan"), float("inf")


def t(*values, dtype=torch.float32):
    return torch.tensor(values, dtype=dtype)


def test_the_documented_example():
    expected = torch.zeros(2, 3)
    got = torch.zeros(2, 3)
    got[0, 0] = 0.5
    diff = measure(expected, got, "y")
    assert (diff.abs, diff.rel, diff.sum, diff.n, diff.argm) == (0.5, 500.0, 0.5, 6, (0, 0))
    assert (diff.dnan, diff.dev, diff.reason, diff.path, diff.scale) == (0, 0, None, "y", 0.0)


def test_the_relative_difference_divides_by_the_expected_value():
    assert measure(t(4.0), t(3.0)).rel == 0.25
    assert measure(t(3.0), t(4.0)).rel == pytest.approx(1 / 3)


@pytest.mark.parametrize(
    ("expected", "got", "largest", "missing"),
    [
        (NAN, NAN, 0.0, 0),
        (NAN, 1.0, INF, 1),
        (1.0, NAN, INF, 1),
        (INF, INF, 0.0, 0),
        (-INF, -INF, 0.0, 0),
        (INF, -INF, INF, 0),
        (INF, 1.0, INF, 0),
        (1.0, INF, INF, 0),
        (INF, NAN, INF, 1),
    ],
)
def test_nan_and_infinity(expected, got, largest, missing):
    for other in (0.0, 1.0):
        diff = measure(t(2.0, expected), t(2.0 + other, got))
        assert diff.abs == max(largest, other)
        assert diff.dnan == missing
        assert not math.isnan(diff.rel)
        assert (diff.rel == INF) == (largest == INF)
        assert diff.argm == ((1,) if largest else (0,) if other else None)


def test_scale_is_the_largest_finite_value():
    assert measure(t(-3.0, INF, NAN, 1.0), t(-3.0, INF, NAN, 1.0)).scale == 3.0


def test_integers_are_exact():
    big = 2**53
    assert measure(torch.tensor([big]), torch.tensor([big + 1])).abs == 1.0
    low, high = torch.tensor([-(2**63)]), torch.tensor([2**63 - 1])
    assert measure(low, high).abs == 2.0**64
    unsigned = torch.tensor([2**63 + 5], dtype=torch.uint64)
    assert measure(unsigned, torch.tensor([2**63 + 2], dtype=torch.uint64)).abs == 3.0
    array = np.array([2**64 - 1], np.uint64)
    assert measure(array, array - np.uint64(1)).abs == 1.0


def test_booleans():
    diff = measure(torch.tensor([True, False]), torch.tensor([True, True]))
    assert (diff.abs, diff.sum, diff.argm) == (1.0, 1.0, (1,))


def test_complex():
    diff = measure(torch.tensor([3 + 4j]), torch.tensor([0j]))
    assert (diff.abs, diff.rel, diff.scale) == (5.0, 1.0, 5.0)
    assert measure(torch.tensor([complex(NAN, 1)]), torch.tensor([1j])).dnan == 1


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float8_e4m3fn])
def test_narrow_floats_are_compared_in_float64(dtype):
    diff = measure(t(1.0, 2.0).to(dtype), t(1.0, 1.5).to(dtype))
    assert (diff.abs, diff.sum) == (0.5, 0.5)


def test_float64_is_not_rounded():
    assert measure(t(1.0, dtype=torch.float64), t(1.0 + 1e-12, dtype=torch.float64)).abs > 0


def test_empty_and_zero_dimensions():
    diff = measure(torch.zeros(0, 3), torch.zeros(0, 3))
    assert (diff.abs, diff.n, diff.argm, diff.reason) == (0.0, 0, None, None)
    diff = measure(torch.tensor(1.0), torch.tensor(3.0))
    assert (diff.abs, diff.n, diff.argm) == (2.0, 1, ())


def test_numbers_arrays_and_tensors_mix():
    assert measure(2.0, torch.tensor(2.5)).abs == 0.5
    assert measure(2, 2**70).abs == 2.0**70
    assert measure(True, np.bool_(False)).abs == 1.0
    diff = measure(t(1.0, 2.0), np.array([1.0, 4.0], np.float32))
    assert (diff.abs, diff.reason, diff.dev) == (2.0, None, 0)
    array = np.array([1.5], ml_dtypes.bfloat16)
    assert measure(array, t(1.0, dtype=torch.bfloat16)).abs == 0.5


def test_shapes_that_differ():
    diff = measure(torch.zeros(2, 3), torch.zeros(2, 1), "y.0")
    assert (diff.abs, diff.rel) == (INF, INF)
    assert diff.reason == "y.0: expected shape (2, 3), got (2, 1)"
    assert measure(torch.zeros(1), 0.0).abs == INF


def test_a_dtype_that_differs_is_a_reason_and_numbers_are_compared():
    diff = measure(t(1.0, 2.0), t(1.0, 2.5).half(), "y")
    assert (diff.abs, diff.reason) == (0.5, "y: expected dtype float32, got float16")
    assert measure(t(1.0), np.array([1.0])).reason == (
        "the value: expected dtype float32, got float64"
    )


def test_without_data():
    diff = measure(torch.zeros(2), torch.zeros(2, device="meta"), "y")
    assert diff.abs == INF
    assert diff.reason == "y: got is a fake or meta tensor without data"


def test_tensors_with_gradients_and_sparse_ones():
    assert measure(torch.ones(2, requires_grad=True), torch.ones(2)).abs == 0
    assert measure(torch.eye(2).to_sparse(), torch.eye(2)).abs == 0


@pytest.mark.parametrize("shape", [(7,), (3, 5), (2, 3, 4), (1, 30), (30, 1), (2, 1, 9)])
@pytest.mark.parametrize("chunk", [1, 4, 10])
def test_chunks_change_nothing(monkeypatch, shape, chunk):
    expected, got = torch.randn(shape), torch.randn(shape)
    whole = measure(expected, got)
    monkeypatch.setattr(module, "_CHUNK", chunk)
    parts = measure(expected.numpy(), got.T.contiguous().T if got.ndim == 2 else got)
    assert (parts.abs, parts.rel, parts.argm, parts.n) == (
        whole.abs, whole.rel, whole.argm, whole.n
    )  # fmt: skip
    assert parts.sum == pytest.approx(whole.sum)


@given(hnp.arrays(np.float32, hnp.array_shapes(max_dims=3, max_side=4)), st.data())
def test_against_numpy(expected, data):
    got = data.draw(hnp.arrays(np.float32, expected.shape, elements=st.floats(-9, 9, width=32)))
    finite = np.isfinite(expected).all()
    diff = measure(expected, got)
    assert diff.abs >= 0
    assert (diff.abs < INF) == bool(finite)
    if finite:
        apart = np.abs(expected.astype(np.float64) - got.astype(np.float64))
        assert diff.abs == apart.max()
        assert diff.rel == (apart / np.maximum(np.abs(expected.astype(np.float64)), 1e-3)).max()
        assert apart.max() == 0 or apart[diff.argm] == apart.max()


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (torch.zeros(1), True), (np.zeros(1), True), (np.float32(1), True), (1, True),
        (True, True), (1j, True), (None, False), ("1", False), ([1], False),
        (np.array(["a"]), False), (np.array([None]), False),
    ],
)  # fmt: skip
def test_is_numeric(value, expected):
    assert is_numeric(value) is expected


def test_what_cannot_be_compared_counts_what_was_expected():
    for got in (torch.zeros(3, 2), torch.zeros(2, 3, device="meta")):
        assert measure(torch.zeros(2, 3), got).n == 6
    assert measure(torch.nn.UninitializedParameter(), torch.zeros(2)).n == 0


def test_integers_of_python_are_exact():
    diff = measure(2**70, 2**70 + 3, "x")
    assert (diff.abs, diff.sum, diff.n, diff.argm, diff.path) == (3.0, 3.0, 1, (), "x")
    assert (diff.rel, diff.scale) == (3 / 2**70, 2.0**70)
    assert measure(7, 7).argm is None
    assert measure(True, False).abs == 1
