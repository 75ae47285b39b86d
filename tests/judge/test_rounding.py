"""Rounding told from faults by a third result, in float64."""

import threading
from types import SimpleNamespace

import torch
from torch import nn
from torchferry.exporter.rounding import doubled, nudged, rounding_error, settled, to_double

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
    assert rounding_error(exact, expected, torch.tensor([0.9985])) > 9e-4
    assert rounding_error(exact, expected, torch.tensor([0.997])) is None
    assert rounding_error(exact, expected, torch.tensor([float("nan")])) is None
    assert rounding_error(None, expected, expected) is None
    assert rounding_error(torch.tensor([1]), torch.tensor([1]), torch.tensor([1])) is None


def test_few_numbers_are_held_to_what_is_usual():
    exact = torch.tensor([1.0], dtype=torch.float64)
    near, far = torch.tensor([1.0001]), torch.tensor([1.003])
    assert rounding_error(exact, near, far) is None
    assert rounding_error(exact, near, far, lambda: 2e-3) == 2e-3
    assert rounding_error(exact, near, far, lambda: 1e-3) is None
    many = exact.expand(16), near.expand(16), far.expand(16)
    assert rounding_error(*many, lambda: 2e-3) is None


def test_weights_move_by_one_rounding_at_most():
    model = nn.Linear(40, 30).to(torch.bfloat16)
    before = model.weight.clone()
    found = nudged(model, 0)
    assert torch.equal(model.weight, before)
    moved = ((found.weight - before) / before).abs()
    assert 0 < moved.max() <= 2 * torch.finfo(torch.bfloat16).eps
    assert not torch.equal(found.weight, nudged(model, 1).weight)


def test_only_half_precision_is_nudged():
    assert nudged(nn.Linear(2, 2), 0) is None
    with torch.device("meta"):
        assert nudged(nn.Linear(2**17, 2**16, dtype=torch.float16), 0) is None


def test_experts_of_which_there_is_no_product_in_float64():
    model = nn.Linear(2, 2)
    model.config = SimpleNamespace(_experts_implementation="grouped_mm")
    assert doubled(model).config._experts_implementation == "batched_mm"
    assert model.config._experts_implementation == "grouped_mm"


def test_what_pytorch_itself_moves_is_settled():
    expected = torch.tensor([1.0, 2.0, 3.0, 4.0])
    got = torch.tensor([5.0, 2.5, float("nan"), 4.0])
    others = [torch.tensor([4.0, 2.0, 9.0, 4.0]), torch.tensor([1.0, 2.1, 3.0, 4.0])]
    found = settled(expected, got, others)
    assert found[:2].tolist() == [1.0, 2.5]  # 4 is less than twice 3, and 0.5 more than twice 0.1
    assert found[2].isnan()
    assert found[3] == 4
    assert settled(expected, got, [None]) is got
    assert settled(expected, got[:2], others).shape == (2,)
