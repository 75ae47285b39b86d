import ml_dtypes
import numpy as np
import pytest
import torch

from torchferry.dumper.element import dtype_name, find_dtype, item_size, presented
from torchferry.errors import UsageError

TORCH = {d for d in vars(torch).values() if isinstance(d, torch.dtype)}
QUANTIZED = {torch.qint8, torch.qint32, torch.quint8, torch.quint4x2, torch.quint2x4}


@pytest.mark.parametrize("dtype", sorted(TORCH - QUANTIZED, key=str), ids=str)
def test_every_dtype_of_torch_has_a_name(dtype):
    assert find_dtype(dtype_name(dtype)) is dtype
    assert item_size(dtype_name(dtype)) == dtype.itemsize


@pytest.mark.parametrize(
    "dtype",
    [
        *("?", "i1", "<u2", ">i4", "<f2", "<f8", ">c8", "<c16", "S3", "<U7", "V5", "<M8[ms]"),
        *("<m8[2D]", ml_dtypes.bfloat16, ml_dtypes.int4, ml_dtypes.uint2),
    ],
    ids=str,
)
def test_dtypes_of_numpy(dtype):
    dtype = np.dtype(dtype)
    assert find_dtype(dtype_name(dtype)) == dtype


@pytest.mark.parametrize("dtype", [torch.qint8, torch.quint4x2, "O", [("x", "i4")], "S0", "V0"])
def test_dtypes_without_plain_memory(dtype):
    assert dtype_name(dtype if isinstance(dtype, torch.dtype) else np.dtype(dtype)) is None


@pytest.mark.parametrize(
    "name",
    [
        *("", "torch", "torch.nn", "torch.qint8", "torch.float33", "ml_dtypes.finfo", "os.sep"),
        *("O", "|O", "|O8", "<i4,<f8", "(2,)<i4", "<f3", "float32", "<U0", "<M8[parsec]"),
    ],
)
def test_unknown_names(name):
    with pytest.raises(UsageError, match="not known here"):
        find_dtype(name)


def test_what_is_shown_instead():
    known = {"float16", "float32", "int8"}
    assert presented("<f4", known) == ("float32", ())
    assert presented("torch.complex32", known) == ("float16", (2,))
    assert presented("torch.complex128", known) == ("uint8", (16,))
    assert presented(">f4", known) == ("uint8", (4,))
    assert presented("ml_dtypes.int4", known) == ("int8", ())
    assert presented("torch.uint4", known) == ("uint8", ())
    assert presented("torch.float8_e5m2", known) == ("uint8", ())
