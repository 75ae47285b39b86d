"""What the tests of the tables share: run a model, change one element of one input, compare."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

import pytest
import torch

from torchferry.values import clone, flatten
from torchferry.zoo import ZooModel, build
from torchferry.zoo.inputs.text import CACHE_NAMES

Change = Callable[[dict[str, Any]], None]


@functools.cache
def built(name: str) -> ZooModel:
    return build(name)


def outputs_of(model: torch.nn.Module, inputs: dict[str, Any], *, cache: bool = True) -> Any:
    """Floating point outputs; the given inputs stay as they are."""
    with torch.no_grad():
        outputs = model(**clone(inputs))
    if not cache and isinstance(outputs, Mapping):
        outputs = {name: value for name, value in outputs.items() if name not in CACHE_NAMES}
    return [
        leaf
        for _, leaf in flatten(outputs)[0]
        if isinstance(leaf, torch.Tensor) and leaf.is_floating_point()
    ]


def check_runs(name: str) -> None:
    """Three sets of different sizes or more, one of batch 1, and numbers of order one."""
    entry = built(name)
    assert not entry.model.training
    shapes = [
        [tuple(leaf.shape) for _, leaf in flatten(s)[0] if isinstance(leaf, torch.Tensor)]
        for s in entry.input_sets
    ]
    assert len(shapes) >= 3
    assert len({str(shape) for shape in shapes}) == len(shapes)
    assert len({str(list(s)) for s in entry.input_sets}) == 1
    for inputs in entry.input_sets:
        outputs = outputs_of(entry.model, inputs)
        assert outputs
        for output in outputs:
            assert torch.isfinite(output).all()
            assert output.abs().max() < 100
        assert outputs[0].abs().max() > 0.05


def how_far(name: str, change: Change, *, number: int = 0) -> float:
    """Largest difference that a change of the inputs makes to the outputs, not to the cache."""
    entry = built(name)
    inputs = entry.input_sets[number]
    other = clone(inputs)
    change(other)
    before = outputs_of(entry.model, inputs, cache=False)
    after = outputs_of(entry.model, other, cache=False)
    return max((a - b).abs().max().item() for a, b in zip(before, after, strict=True) if a.numel())


def nudged(name: str, key: str, *, number: int = 0) -> float:
    """How far the outputs move when one element of an input of real numbers moves by one."""

    def change(inputs: dict[str, Any]) -> None:
        inputs[key].view(-1)[inputs[key].numel() // 3] += 1

    return how_far(name, change, number=number)


@pytest.fixture(name="built")
def _built() -> Callable[[str], ZooModel]:
    return built


@pytest.fixture(name="check_runs")
def _check_runs() -> Callable[[str], None]:
    return check_runs


@pytest.fixture(name="how_far")
def _how_far() -> Callable[..., float]:
    return how_far


@pytest.fixture(name="nudged")
def _nudged() -> Callable[..., float]:
    return nudged
