import hypothesis.strategies as st
import numpy as np
import pytest
import torch
from hypothesis import given

from torchferry.dumper.region import Region, array_in, dense_strides, extent, tensor_in
from torchferry.errors import UsageError

RAW = torch.arange(64, dtype=torch.uint8)


@given(st.lists(st.integers(0, 4), max_size=4).map(tuple), st.sampled_from([1, 2, 8]))
def test_dense_strides_are_numpys(shape, size):
    array = np.empty(shape, f"V{size}")
    if array.size:
        assert dense_strides(shape, size) == array.strides
    assert extent(shape, dense_strides(shape, size), size) == (0, array.nbytes)


def test_extent_of_strides_backwards_and_of_none():
    assert extent((3, 2), (-8, 4), 4) == (-16, 8)
    assert extent((5,), (0,), 4) == (0, 4)
    assert extent((0, 7), (4, 4), 4) == (0, 0)
    assert extent((), (), 4) == (0, 4)


@pytest.mark.parametrize(
    "region",
    [
        Region(0, "torch.int16", (2, 3)),
        Region(0, "torch.int16", (2, 3), 4, (2, 4)),
        Region(0, "torch.int16", (), 62),
        Region(0, "torch.int16", (0, 2**40)),
        Region(0, "torch.int16", (10**9,), 0, (0,)),
    ],
)
def test_json_and_the_tensor(region):
    again = Region.from_json(
        {**region.to_json(), "shape": list(region.shape)}
        | ({} if region.strides is None else {"strides": list(region.strides)}),
        [64],
    )
    assert again == region
    tensor = tensor_in(RAW, again)
    assert tuple(tensor.shape) == region.shape
    assert tensor.untyped_storage().data_ptr() == RAW.data_ptr()
    if 0 < tensor.numel() < 100:
        array = array_in(RAW, Region(0, "<i2", region.shape, region.offset, region.strides))
        assert array.tolist() == tensor.tolist()
        assert np.shares_memory(array, RAW.numpy())


def test_arrays_backwards_and_of_no_element():
    assert array_in(RAW, Region(0, "|u1", (3,), 5, (-2,))).tolist() == [5, 3, 1]
    assert array_in(RAW, Region(0, "<f8", (0, 3))).shape == (0, 3)


@pytest.mark.parametrize(
    "data",
    [
        {},
        {"buffer": 0, "dtype": "torch.int8", "shape": [65]},
        {"buffer": 0, "dtype": "torch.int8", "shape": [1], "offset": 64},
        {"buffer": 0, "dtype": "torch.int8", "shape": [2], "strides": [64]},
        {"buffer": 0, "dtype": "torch.int8", "shape": [2], "strides": [-1]},
        {"buffer": 0, "dtype": "torch.int8", "shape": [2], "strides": [1, 1]},
        {"buffer": 0, "dtype": "torch.int8", "shape": [2], "strides": "1"},
        {"buffer": 0, "dtype": "torch.int8", "shape": [2.0]},
        {"buffer": 0, "dtype": "torch.int8", "shape": [2], "offset": None},
        {"buffer": 1, "dtype": "torch.int8", "shape": [2]},
        {"buffer": 0, "dtype": "torch.int8", "shape": "2"},
        {"buffer": 0, "dtype": "torch.int9", "shape": [2]},
        {"buffer": 0, "dtype": "torch.int64", "shape": [2**61]},
    ],
)
def test_what_is_no_place(data):
    with pytest.raises(UsageError):
        Region.from_json(data, [64])


def test_what_is_no_tensor_or_array():
    for region in (
        Region(0, "|u1", (1,)),
        Region(0, "torch.int16", (1,), 1),
        Region(0, "torch.int16", (2,), 0, (3,)),
        Region(0, "torch.int16", (2,), 4, (-2,)),
    ):
        with pytest.raises(UsageError):
            tensor_in(RAW, region)
    with pytest.raises(UsageError):
        array_in(RAW, Region(0, "torch.uint8", (1,)))
