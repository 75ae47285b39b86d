"""Are two values equal to the bit, and do they share memory in the same way?"""

from __future__ import annotations

import itertools
import math
import struct
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from torchferry.values import flatten


def leaf_bits(leaf: Any) -> Any:
    """What two leaves have in common when they are the same to the bit."""
    if isinstance(leaf, torch.Tensor):
        leaf_ = leaf.detach().resolve_conj().resolve_neg()
        size = leaf_.element_size()
        raw = torch.empty(0, dtype=torch.uint8).set_(
            leaf_.untyped_storage(),
            leaf_.storage_offset() * size,
            (*leaf_.shape, size),
            (*(stride * size for stride in leaf_.stride()), 1),
        )
        data = raw.contiguous().numpy().tobytes()
        return type(leaf), leaf.dtype, leaf.shape, leaf.requires_grad, data
    if isinstance(leaf, np.ndarray | np.generic):
        return type(leaf), leaf.dtype, leaf.shape, np.ascontiguousarray(leaf).tobytes()
    if isinstance(leaf, float):
        return float, struct.pack(">d", leaf)
    if isinstance(leaf, complex):
        return complex, struct.pack(">dd", leaf.real, leaf.imag)
    return type(leaf), leaf


def sharing(leaves: list[Any]) -> list[tuple[int, int, object]]:
    """Which pairs of leaves are one object, or lie how many bytes apart in one memory."""
    found: list[tuple[int, int, object]] = []
    for (i, a), (j, b) in itertools.combinations(enumerate(leaves), 2):
        mine, other = place(a), place(b)
        if isinstance(a, torch.Tensor | np.ndarray) and a is b:
            found.append((i, j, "same"))
        elif mine and other and mine[0] == other[0]:
            found.append((i, j, other[1] - mine[1]))
    return found


def place(leaf: Any) -> tuple[object, int] | tuple[()]:
    """The memory of a leaf and the address of its first element, if it has any."""
    # What a conjugate that is not computed yet shares with others is not kept.
    if isinstance(leaf, torch.Tensor) and leaf.numel() and not leaf.is_conj():
        return leaf.untyped_storage().data_ptr(), leaf.data_ptr()
    if isinstance(leaf, np.ndarray) and leaf.size:
        base: Any = leaf
        while isinstance(base.base, np.ndarray):
            base = base.base
        return base.ctypes.data, leaf.ctypes.data
    return ()


@pytest.fixture(scope="session")
def bits_of() -> Callable[[Any], Any]:
    """The type of a leaf and, last, its bits."""
    return leaf_bits


@pytest.fixture(scope="session")
def same_bits() -> Callable[[Any, Any], bool]:
    """Whether a value read back is the one written."""

    def same(written: Any, read: Any) -> bool:
        leaves, structure = flatten(written)
        leaves_, structure_ = flatten(read)
        if structure != structure_ or len(leaves) != len(leaves_):
            return False
        mine, other = [leaf for _, leaf in leaves], [leaf for _, leaf in leaves_]
        return list(map(leaf_bits, mine)) == list(map(leaf_bits, other)) and (
            sharing(mine) == sharing(other)
        )

    return same


def a_value() -> dict[str, Any]:
    base = torch.arange(24.0).reshape(4, 6)
    array = np.arange(600, dtype=np.int16).reshape(20, 30)
    return {
        "shared": [base, base.T, base[1:3, ::2], base],
        "arrays": (array, array[::-1, ::3]),
        "long": torch.arange(1000, dtype=torch.float64),
        "half": torch.ones(3, 2, dtype=torch.bfloat16),
        "none": None,
        "numbers": [True, 2**70, math.nan, -0.0, 1e300, 2 - 1j, "text"],
    }


@pytest.fixture
def value() -> dict[str, Any]:
    """A nested value with shared memory, and tensors on both sides of what is kept inline."""
    return a_value()
