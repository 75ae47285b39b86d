from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from torchferry.capturer import accept_aliases
from torchferry.errors import UsageError
from torchferry.sources.arguments import as_input_sets, check_inputs


class New(nn.Module):
    """As transformers 5.24 names the cache."""

    def forward(self, x: torch.Tensor, cache: Any = None, scale: float = 1.0) -> torch.Tensor:
        return x * scale


class Old(nn.Module):
    def forward(self, x: torch.Tensor, past_key_values: Any = None) -> torch.Tensor:
        return x


class Both(nn.Module):
    def forward(self, cache: Any, past_key_values: Any) -> Any:
        return cache


class Wrapper(nn.Module):
    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return args


@pytest.mark.parametrize(
    ("model", "given", "expected"),
    [
        (New(), ["past_key_values", "x"], ["cache", "x"]),
        (New(), ["cache", "x"], ["cache", "x"]),
        (Old(), ["x", "cache"], ["x", "past_key_values"]),
        (Old(), ["x", "past_key_values"], ["x", "past_key_values"]),
        (New(), ["cache", "past_key_values"], ["cache", "past_key_values"]),
        (Both(), ["past_key_values", "cache"], ["past_key_values", "cache"]),
        (Wrapper(), ["past_key_values"], ["past_key_values"]),
        (nn.Linear(1, 1), ["cache"], ["cache"]),
        (New(), [], []),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, nn.Module) else "-".join(value),
)
def test_the_cache_is_renamed_to_what_forward_calls_it(
    model: nn.Module, given: list[str], expected: list[str]
) -> None:
    kwargs = {name: object() for name in given}
    renamed = accept_aliases(model, kwargs)
    assert list(renamed) == expected
    assert list(renamed.values()) == list(kwargs.values())
    assert list(kwargs) == given


def test_inputs_that_fit_pass() -> None:
    check_inputs(New(), (torch.zeros(2),), {"scale": 2.0})
    check_inputs(New(), (), {"x": 1})
    check_inputs(Wrapper(), (1, 2), {"anything": 3})


@pytest.mark.parametrize(
    ("args", "kwargs", "reason"),
    [
        ((), {}, "missing a required argument: 'x'"),
        ((1, 2, 3, 4), {}, "too many positional arguments"),
        ((1,), {"x": 2}, "multiple values for argument 'x'"),
        ((1,), {"mask": 2}, "unexpected keyword argument 'mask'"),
    ],
)
def test_inputs_that_do_not_fit_show_the_signature_and_what_was_given(
    args: tuple[Any, ...], kwargs: dict[str, Any], reason: str
) -> None:
    with pytest.raises(UsageError) as raised:
        check_inputs(New(), args, kwargs)
    first, signature, given = str(raised.value).splitlines()
    assert first.startswith("the inputs do not fit New.forward: ")
    assert reason in first
    assert signature == "  forward(x, cache=None, scale=1.0)"
    assert given.startswith("  given ((")


def test_what_was_given_is_told_with_shapes() -> None:
    with pytest.raises(UsageError, match=r"given \(\(T1s2x3,\),dict\(mask:T9s2\)\)"):
        check_inputs(New(), (torch.zeros(2, 3),), {"mask": torch.ones(2, dtype=torch.bool)})


def test_input_sets_come_in_three_forms() -> None:
    x = torch.zeros(1)
    given = [(x,), {"x": x}, ((x,), {"y": x}), ()]
    assert as_input_sets(given, "here") == [
        ((x,), {}), ((), {"x": x}), ((x,), {"y": x}), ((), {})
    ]  # fmt: skip
    assert as_input_sets((one for one in given[:2]), "here") == [((x,), {}), ((), {"x": x})]
    assert as_input_sets([], "here") == []


def test_a_pair_of_a_tensor_and_a_dictionary_is_two_positional_arguments() -> None:
    x = torch.zeros(1)
    assert as_input_sets([(x, {"y": x})], "here") == [((x, {"y": x}), {})]


@pytest.mark.parametrize(
    ("value", "told"),
    [
        (None, "gave None;"),
        (torch.zeros(2, 3), "gave T1s2x3;"),
        ({"x": 1}, r"gave dict\(x:int\);"),
        ((1, 2), r"gave \(int,int\);"),
        ([torch.zeros(2)], "gave T1s2;"),
        ([{1: 2}], r"gave \{1:int\};"),
    ],
)
def test_other_answers_are_told(value: Any, told: str) -> None:
    with pytest.raises(UsageError, match=told) as raised:
        as_input_sets(value, "--inputs inputs.py:make")
    assert str(raised.value).startswith("--inputs inputs.py:make gave")
    assert "expected a list of input sets" in str(raised.value)
