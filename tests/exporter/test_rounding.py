"""Rounding told from faults by a third result, in float64."""

import threading

import torch
from torch import nn

from torchferry.exporter.rounding import doubled, rounding_error, to_double
from torchferry.values import make_dynamic_cache


def test_weights_are_doubled_and_the_model_is_left():
    model = nn.Linear(3, 2)
    x = torch.ones(1, 3)
    result = doubled(model)(to_double(x))
    assert result.dtype == torch.float64
    torch.testing.assert_close(result.float(), model(x))
    assert model.weight.dtype == torch.float32


def test_nested_inputs_are_doubled_and_left():
    cache = make_dynamic_cache([(torch.ones(1, 1, 2, 3), torch.ones(1, 1, 2, 3))])
    inputs = to_double({"ids": torch.tensor([1]), "cache": cache, "name": "x"})
    assert inputs["ids"].dtype == torch.int64
    assert inputs["name"] == "x"
    assert inputs["cache"].layers[0].keys.dtype == torch.float64
    assert cache.layers[0].keys.dtype == torch.float32


def test_weights_too_large_for_a_copy():
    with torch.device("meta"):
        assert doubled(nn.Linear(2**16, 2**15, bias=False)) is None


def test_a_model_that_cannot_be_copied():
    model = nn.Linear(2, 2)
    model.result = model.weight * 2  # PyTorch copies no result of a computation
    assert doubled(model) is None
    model.result = threading.Lock()
    assert doubled(model) is None


def test_rounding_error():
    exact = torch.tensor([1.0], dtype=torch.float64)
    expected = torch.tensor([1.001])
    assert rounding_error(exact, expected, torch.tensor([0.9985])).abs > 9e-4
    assert rounding_error(exact, expected, torch.tensor([0.997])) is None
    assert rounding_error(exact, expected, torch.tensor([float("nan")])) is None
    assert rounding_error(None, expected, expected) is None
    assert rounding_error(torch.tensor([1]), torch.tensor([1]), torch.tensor([1])) is None
