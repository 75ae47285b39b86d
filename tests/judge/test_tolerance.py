from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from torchferry.judge.tolerance import Tolerance
from torchferry.values.difference import Discrepancy, max_diff

F32 = Tolerance.of(torch.float32)

# Outputs -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("scale", "limit"),
    [(1.0, 1.1e-4), (1000.0, 1e-4 + 1e-2), (0.1, 1.1e-5), (0.0, 1.1e-6), (1e-9, 1e-10)],
)
def test_the_limit_grows_with_what_is_expected(scale: float, limit: float) -> None:
    assert F32.allows(Discrepancy(abs=limit * 0.999, scale=scale))
    assert not F32.allows(Discrepancy(abs=limit * 1.001, scale=scale))


@pytest.mark.parametrize(
    ("dtype", "difference", "passes"),
    [
        (torch.int64, 1.0, False),
        (torch.int64, 0.0, True),
        (torch.bool, 1.0, False),
        (torch.float32, 1e-3, False),
        (torch.float16, 1e-3, True),
        (torch.bfloat16, 5e-2, True),
        (torch.float64, 5e-5, True),  # a float32 model may return float64
    ],
)
def test_the_dtype_of_an_output_matters(
    dtype: torch.dtype, difference: float, passes: bool
) -> None:
    expected = torch.ones(2).to(dtype)
    found = F32.widened(dtype).allows(Discrepancy(abs=difference, scale=1.0), expected)
    assert found is passes


@given(st.floats(1e-12, 1e6), st.floats(0, 1e6), st.floats(0, 1e3))
def test_a_larger_scale_never_allows_less(low: float, more: float, difference: float) -> None:
    if F32.allows(Discrepancy(abs=difference, scale=low)):
        assert F32.allows(Discrepancy(abs=difference, scale=low + more))


@pytest.mark.parametrize(
    "difference",
    [
        Discrepancy(abs=0.0, dnan=1, scale=1.0),
        Discrepancy(abs=0.0, reason="expected float32, got float16", scale=1.0),
        Discrepancy(abs=math.inf, scale=1.0),
        Discrepancy(abs=math.nan, scale=1.0),
    ],
)
def test_what_never_passes(difference: Discrepancy) -> None:
    assert not F32.allows(difference)


def test_narrow_types_may_differ_more() -> None:
    dtypes = (torch.float64, torch.float32, torch.float16, torch.bfloat16)
    limits = [Tolerance.of(dtype).atol for dtype in dtypes]
    assert limits == sorted(set(limits))
    assert Tolerance.of(torch.int64) == F32


# Values within a model ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("expected", "got", "passes"),
    [
        (1.0, 1.00009, True),
        (1.0, 1.0002, False),
        (1000.0, 1000.05, True),
        (1000.0, 1000.2, False),
        (1e-3, 1.00009e-3, True),
        (1e-3, 1.01e-3, False),
        (0.0, 5e-9, True),  # noise around zero
        (0.0, 1e-6, False),
        (float("nan"), float("nan"), True),
        (1.0, float("nan"), False),
        (math.inf, math.inf, True),
    ],
)
def test_the_limit_of_a_value_follows_its_scale(expected: float, got: float, passes: bool) -> None:
    tolerance = Tolerance.inside(torch.float32)
    difference = max_diff(torch.tensor([expected]).double(), torch.tensor([got]).double())
    assert tolerance.allows(difference) is passes


def test_what_must_be_equal_is_not_allowed_to_differ() -> None:
    difference = max_diff(torch.tensor([1000]), torch.tensor([1001]))
    assert not Tolerance(1.0, 1.0).allows(difference, torch.tensor([1000]))
    assert Tolerance(1.0, 1.0).allows(difference)


def test_another_shape_or_dtype_never_passes() -> None:
    tolerance = Tolerance(math.inf, 1.0)
    assert not tolerance.allows(max_diff(torch.ones(2), torch.ones(3)))
    assert not tolerance.allows(max_diff(torch.ones(2), torch.ones(2).double()))


def test_a_coarse_model_makes_its_float32_values_coarse() -> None:
    assert Tolerance.inside(torch.float32, torch.float16) == Tolerance.inside(torch.float16)
    assert Tolerance.inside(torch.float16, torch.float32) == Tolerance.inside(torch.float16)
    assert Tolerance.inside(torch.float64).atol < Tolerance.inside(torch.float32).atol
    assert Tolerance.inside(None) == Tolerance.inside(torch.float32)
