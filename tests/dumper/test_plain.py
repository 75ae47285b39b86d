import enum
import json
import math
import struct

import hypothesis.strategies as st
import numpy as np
import pytest
import torch
from hypothesis import given

from torchferry.dumper.plain import plain_from_json, plain_to_json
from torchferry.errors import UsageError


def through_json(value):
    return plain_from_json(json.loads(json.dumps(plain_to_json(value))))


@given(st.none() | st.booleans() | st.integers() | st.text() | st.floats(allow_nan=False))
def test_plain_values(value):
    again = through_json(value)
    assert type(again) is type(value)
    assert again == value


@given(st.integers(0, 2**64 - 1))
def test_all_bits_of_a_float(bits):
    value = struct.unpack(">d", bits.to_bytes(8, "big"))[0]
    # The processor itself may make a signalling NaN a quiet one as Python copies it.
    assert struct.pack(">d", through_json(value)) == struct.pack(">d", value)


def test_parts_of_a_complex():
    again = through_json(complex(-0.0, math.inf))
    assert math.copysign(1, again.real) == -1
    assert again.imag == math.inf


@pytest.mark.parametrize("value", [10**5000, -(10**5000), 2**63, -(2**63) - 1], ids="abcd")
def test_integers_of_any_size(value):
    assert through_json(value) == value


def test_lone_surrogates():
    assert through_json("\ud800x") == "\ud800x"


@pytest.mark.parametrize(
    "value", [torch.bfloat16, torch.device("cuda:1"), torch.device("cpu"), np.dtype(">f4")]
)
def test_dtypes_and_devices(value):
    assert through_json(value) == value


class Color(enum.IntEnum):
    RED = 1


class Word(str):
    pass


@pytest.mark.parametrize("value", [Color.RED, Word("x"), b"x", object(), {1}, int, torch.qint8])
def test_other_types_are_refused(value):
    with pytest.raises(UsageError, match="no tensor, array, number"):
        plain_to_json(value)


@pytest.mark.parametrize(
    "data",
    [
        *([1], {}, {"int": "x"}, {"int": 3}, {"float": "00"}, {"float": "zz"}),
        *({"complex": ["00"]}, {"dtype": "torch.nn"}, {"device": "nowhere"}, {"x": "cpu"}),
    ],
)
def test_what_was_not_written_here(data):
    with pytest.raises(UsageError):
        plain_from_json(data)
