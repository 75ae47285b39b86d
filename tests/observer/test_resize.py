import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from torchferry.observer.resize import resize

FLOATS = [
    torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.float8_e4m3fn,
    torch.float8_e5m2, torch.float8_e4m3fnuz, torch.float8_e5m2fnuz,
]  # fmt: skip
OTHERS = [
    torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.uint16,
    torch.uint32, torch.uint64, torch.complex64,
]  # fmt: skip


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def values(shape, dtype, seed=0):
    made = torch.randn(shape, generator=generator(seed)) * 3
    return made.abs().to(dtype) if dtype not in FLOATS else made.to(dtype)


@st.composite
def shapes(draw):
    old = draw(st.lists(st.integers(0, 6), max_size=3))
    return old, tuple(draw(st.integers(0, 7)) for _ in old)


@given(shapes(), st.sampled_from(FLOATS + OTHERS))
def test_keeps_dtype_and_range_at_any_size(sizes, dtype):
    old, new = sizes
    tensor = values(old, dtype)
    result = resize(tensor, new, generator())
    assert result.dtype == dtype
    assert result.shape == new
    assert result.is_contiguous()
    if 0 in new or 0 in old or dtype is torch.complex64:
        return
    low, high = tensor.double().min(), tensor.double().max()
    assert low <= result.double().min()
    assert result.double().max() <= high
    if dtype not in FLOATS:
        assert set(result.flatten().tolist()) <= set(tensor.flatten().tolist())


@given(st.integers(1, 8), st.integers(0, 20), st.booleans())
def test_a_mask_stays_sorted_and_padded_at_its_side(padding, length, left):
    mask = torch.ones(2, 9, dtype=torch.int64)
    mask[:, :padding] = 0
    mask = mask if left else mask.flip(1)
    result = resize(mask, (2, length), generator())
    assert torch.equal(result, result.sort(dim=1, descending=not left).values)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16])
def test_rows_that_were_repeated_differ(dtype):
    tensor = values((2, 40), dtype)
    for shape in ((5, 40), (5, 3)):  # also where the tensor as a whole does not grow
        result = resize(tensor, shape, generator())
        assert len({tuple(row.tolist()) for row in result}) == 5


def test_same_size_is_an_equal_copy():
    tensor = values((3, 4), torch.float32).t()
    result = resize(tensor, (4, 3), generator())
    assert torch.equal(result, tensor)
    assert result.data_ptr() != tensor.data_ptr()


def test_the_noise_is_that_of_the_seed():
    tensor = values((2, 8), torch.float32)
    first, again, other = (resize(tensor, (4, 8), generator(s)) for s in (1, 1, 2))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


def test_precision_of_float64_survives():
    tensor = torch.tensor([[1.0 + 2.0**-40, 2.0]], dtype=torch.float64)
    result = resize(tensor, (7, 2), generator())
    assert not torch.equal(result, result.float().double())


def test_zeros_infinities_and_nan_stay_what_they_are():
    tensor = torch.tensor([[0.0, float("-inf"), float("nan"), 3.0]])
    result = resize(tensor, (3, 4), generator())
    assert (result[:, 0] == 0).all()
    assert (result[:, 1] == float("-inf")).all()
    assert result[:, 2].isnan().all()
    assert result[:, 3].isfinite().all()
    assert resize(torch.full((1, 2), float("nan")), (2, 2), generator()).isnan().all()


def test_an_empty_axis_is_filled_with_zeros():
    result = resize(torch.empty(0, 3), (2, 3), generator())
    assert torch.equal(result, torch.zeros(2, 3))


def test_a_scalar_stays_and_no_gradient_is_recorded():
    assert resize(torch.tensor(3), (), generator()).item() == 3
    result = resize(torch.ones(2, 3, requires_grad=True), (5, 3), generator())
    assert not result.requires_grad
    assert result.is_leaf


def test_a_shape_of_another_rank_is_refused():
    with pytest.raises(ValueError, match="zip"):
        resize(torch.zeros(2, 3), (2,), generator())
