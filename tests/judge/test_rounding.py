"""Rounding told from faults by a third result, in float64."""

import threading
from types import SimpleNamespace

import torch
from torch import nn

from torchferry.judge import Limits, Tolerance
from torchferry.judge.rounding import apart, doubled, rounding_error, settled, spread, to_double
from torchferry.values import make_dynamic_cache
from versions import cache_in


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
    assert cache_in(inputs).layers[0].keys.dtype == torch.float64
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


def test_experts_of_which_there_is_no_product_in_float64():
    model = nn.Linear(2, 2)
    model.config = SimpleNamespace(_experts_implementation="grouped_mm")
    assert doubled(model).config._experts_implementation == "batched_mm"
    assert model.config._experts_implementation == "grouped_mm"


F32 = Tolerance.of(torch.float32)


def test_elements_apart():
    nan = float("nan")
    one = torch.tensor([1.0, nan, nan, torch.inf, 3.0])
    found = apart(one, torch.tensor([1.5, nan, 1.0, torch.inf, 3.0]))
    assert found.tolist() == [0.5, 0, torch.inf, 0, 0]
    assert apart(torch.tensor([True, False]), torch.tensor([True, True])).tolist() == [0, 1]
    assert apart(one, one[:2]) is None
    assert apart(one, None) is None
    assert spread(one, [None, one[:2]]) is None
    assert spread(torch.zeros(2), [torch.tensor([1.0, 0]), torch.tensor([-2.0, 0])]).tolist() == [
        2, 0,
    ]  # fmt: skip


def test_what_pytorch_itself_moves_is_settled():
    expected = torch.tensor([1.0, 2.0, 3.0, 4.0])
    others = [torch.tensor([4.0, 2.0, 9.0, 4.0]), torch.tensor([1.0, 2.1, 3.0, 4.0])]
    for got, passes in (
        ([4.0, 2.0, 3.0, 4.0], True),
        ([1.0, 2.1, -3.0, 4.0], True),
        ([9.0, 2.0, 3.0, 4.0], False),  # 8 is more than 3 moves
        ([1.0, 2.5, 3.0, 4.0], False),
        ([1.0, 2.0, 3.0, 4.1], False),  # nothing moves there
        ([1.0, 2.0, float("nan"), 4.0], False),
    ):
        found = settled(expected, torch.tensor(got), others, F32, typical=False)
        assert (found == 6) is passes
    assert settled(expected, torch.tensor(got), [None], F32) is None
    assert settled(expected, expected[:2], others, F32) is None
    assert settled(expected, expected + 1, others, Limits(atol=2.0), typical=False) is not None


def test_an_element_may_move_as_others_of_its_row_do():
    expected = torch.zeros(2, 20)
    other = torch.full((2, 20), 0.01)
    other[0, 3] = 0  # by chance
    other[1] = 0
    got = torch.zeros(2, 20)
    got[0, 3] = 0.01
    assert settled(expected, got, [other], F32) is not None
    assert settled(expected, got, [other], F32, typical=False) is None
    assert settled(expected, got.flip(0), [other], F32) is None
