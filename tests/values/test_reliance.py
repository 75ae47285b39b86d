"""Calls that answer otherwise than code asks."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from torchferry.errors import UsageError
from torchferry.values.reliance import check_reliances

X = torch.rand(4, 6)


@pytest.mark.parametrize(
    ("asked", "leaves", "words"),
    [
        ("memory layout", {"x": X.T}, r"argument x is not contiguous.* Give x\.clone\("),
        ("memory layout", {"x": X[1:]}, "not at the start of its memory"),
        ("gradients", {"x": torch.nn.Parameter(X)}, r"wants derivatives.* Give x\.detach\(\)"),
        ("gradients", {"x": X.clone().requires_grad_()}, "wants derivatives"),
        ("shared memory", {"x": X, "y": X}, r"argument y shares its memory with x.*y\.clone"),
        ("shared memory", {"x": X, "y": X[:2]}, "shares its memory with x"),
        ("numbers", {"x": torch.tensor([1.0, float("nan")])}, r"x holds a NaN.*x\.nan_to_num\("),
        ("order", {"y": X, "x": X}, "in the order y, x, and were exported as x, y"),
    ],
)
def test_a_call_is_held_to_what_code_asks(asked: Any, leaves: Any, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        check_reliances([asked], leaves, ["x", "y"])
    others: set[Any] = {"memory layout", "gradients", "order", "shared memory", "numbers"} - {
        asked
    }
    for other in others - ({"shared memory"} if asked == "order" else set()):
        check_reliances([other], leaves, ["x", "y"])


def test_numbers_and_empty_tensors_are_nothing_to_ask_of() -> None:
    empty = torch.zeros(0, 3)
    asked: Any = ["memory layout", "gradients", "order", "shared memory", "numbers"]
    check_reliances(asked, {"x": X, "n": 3, "y": empty, "z": empty[:0]}, ["x", "y", "z"])
