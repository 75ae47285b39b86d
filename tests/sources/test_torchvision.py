"""tests/field has the models themselves, which need a torchvision that fits torch."""

from __future__ import annotations

import sys
from inspect import signature

import pytest
import torch

from torchferry.errors import UsageError
from torchferry.sources import torchvision
from torchferry.sources.torchvision import load_torchvision


def test_without_the_package_the_command_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torchvision", None)
    with pytest.raises(UsageError, match=r"needs torchvision.*: pip install torchvision$"):
        load_torchvision("torchvision:resnet18")


@pytest.mark.parametrize("part", ["detection", "video", "optical_flow"])
def test_inputs_follow_every_size(part: str) -> None:
    make, free = torchvision._INPUTS[part]
    height, width = free[0]
    assert all(len(size) == 2 for size in free)
    sizes = {name: 20 + 4 * i for i, name in enumerate(signature(make).parameters)}
    (first, *_) = make(**sizes)
    tensors = first if isinstance(first, list) else [first]
    shapes = torch.Size([size for tensor in tensors for size in tensor.shape])
    assert set(sizes.values()) <= set(shapes)
    assert {height, width} <= {s for t in make(height, width)[0] for s in t.shape}
