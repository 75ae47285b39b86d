from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from torchferry.dims import Legal
from torchferry.errors import UsageError
from torchferry.observer import Observation, observe
from torchferry.observer.given import sets_of, state_legal, to_observation
from torchferry.values import make_dynamic_cache


class Sum(nn.Module):
    def forward(self, x: torch.Tensor, mask: torch.Tensor, n: int = 1) -> torch.Tensor:
        if mask.shape[1] != x.shape[1] + n:
            raise ValueError("the mask is longer by n")
        return x.sum() + mask.sum()


def make(batch_size: int, length: int, n: int) -> Any:
    return (torch.rand(batch_size, length),), {"mask": torch.ones(batch_size, length + n), "n": n}


def sizes_seen(seen: Observation) -> dict[str, list[str]]:
    return {a.name: [str(axis.size) for axis in a.sizes] for a in seen.arguments}


def test_a_function_of_sizes_is_asked_and_its_parameters_name_the_dimensions() -> None:
    seen = to_observation(Sum(), make)
    assert seen.dynamic_names == ("batch_size", "length", "n")
    assert sizes_seen(seen) == {
        "x": ["batch_size", "length"],
        "mask": ["batch_size", "length + n"],
        "n": ["n"],
    }
    assert "→ length + n, as make varies" in seen.arguments[1].axes[1].reason
    assert all(seen.sizes_of(call) == call.sizes for call in seen.calls)
    model = Sum()
    for sizes in ({"batch_size": 1, "length": 1, "n": 9}, {"batch_size": 7, "length": 5, "n": 2}):
        args, kwargs = seen.inputs_at(sizes)
        model(*args, **kwargs)
        assert seen.sizes_at(sizes, (args, kwargs)) == sizes
        assert kwargs["n"] == sizes["n"]


def test_recorded_sizes_give_the_recorded_inputs() -> None:
    seen = to_observation(Sum(), make)
    call = seen.calls[0]
    _, kwargs = seen.inputs_at(seen.sizes_of(call))
    assert torch.equal(kwargs["x"], call.args[0])
    kwargs["x"].zero_()
    assert call.args[0].sum() > 0


def test_the_random_numbers_of_the_caller_go_on() -> None:
    torch.manual_seed(0)
    expected = torch.rand(1)
    torch.manual_seed(0)
    to_observation(Sum(), make)
    assert torch.rand(1) == expected


def test_a_size_that_stands_nowhere_alone_has_its_name_in_expressions() -> None:
    def doubled(batch_size: int, half: int) -> Any:
        return {"input": torch.rand(batch_size, 2 * half)}

    seen = to_observation(nn.ReLU(), doubled)
    assert sizes_seen(seen) == {"input": ["batch_size", "2*half"]}
    assert seen.sizes_of(seen.calls[0]) == {"batch_size": 2, "half": 3}
    assert seen.inputs_at({"batch_size": 1, "half": 5})[1]["input"].shape == (1, 10)


def test_a_size_that_no_expression_has_is_one_of_its_own() -> None:
    def odd(n: int) -> Any:
        return {"input": torch.rand(n, (n * 7919) % 31 + 1)}

    seen = to_observation(nn.ReLU(), odd)
    first, second = sizes_seen(seen)["input"]
    assert (first, seen.free_names) == ("n", ["n"])
    inputs = seen.inputs_at({"n": 9})
    assert seen.sizes_at({"n": 9, second: 1}, inputs) == {"n": 9, second: (9 * 7919) % 31 + 1}


def test_a_cache_may_be_empty() -> None:
    class Decoder(nn.Module):
        def forward(self, x: torch.Tensor, cache: Any = None) -> torch.Tensor:
            return x

    def decode(batch_size: int, past: int) -> Any:
        layer = (torch.rand(batch_size, 2, past, 4), torch.rand(batch_size, 2, past, 4))
        return {"x": torch.rand(batch_size, 1), "cache": make_dynamic_cache([layer])}

    seen = to_observation(Decoder(), decode)
    assert set(seen.dynamic_names) == {"batch_size", "past"}
    assert seen.inputs_at({"batch_size": 1, "past": 0})


def test_another_structure_at_another_size_is_a_mistake_when_it_is_asked_for() -> None:
    def growing(n: int) -> Any:
        return {"x": torch.rand(n, 2), **({"other": torch.rand(1)} if n == 17 else {})}

    class First(nn.Module):
        def forward(self, x: torch.Tensor, other: Any = None) -> torch.Tensor:
            return x

    seen = to_observation(First(), growing)
    assert seen.inputs_at({"n": 16})
    with pytest.raises(UsageError, match=r"growing\(n=17\) has other, unlike"):
        seen.inputs_at({"n": 17})


def test_stated_sizes() -> None:
    seen = to_observation(Sum(), make, "batch_size=1..2, length=8..64:8, n=3")
    assert seen.dynamic_names == ("batch_size", "length")
    assert all(call.kwargs["n"] == 3 and call.args[0].shape[1] % 8 == 0 for call in seen.calls)
    assert str(seen.legal) == "batch_size=1..2, length=8..64:8, n=3"
    with pytest.raises(UsageError, match="called 'width'"):
        to_observation(Sum(), make, "width=3")


def test_sets_and_observations_with_stated_sizes() -> None:
    sets = [(torch.rand(n, 4),) for n in (3, 5)]
    seen = to_observation(nn.ReLU(), sets, {"batch_size": range(1, 9)})
    assert seen.legal == Legal.of("batch_size=1..8")
    assert to_observation(nn.ReLU(), seen) is seen
    assert not to_observation(nn.ReLU(), sets).legal
    with pytest.raises(UsageError, match=r"called 'n'.*batch_size"):
        to_observation(nn.ReLU(), seen, "n=3")
    with pytest.raises(UsageError, match=r"batch_size is 5 in an input set.*=1\.\.4"):
        state_legal(seen, Legal.of("batch_size=1..4"))


def test_a_function_without_parameters_gives_sets() -> None:
    seen = to_observation(nn.ReLU(), lambda: [(torch.rand(n, 4),) for n in (3, 5)])
    assert seen.maker is None
    assert len(seen.calls) == 2


def test_a_model_that_may_not_be_run_is_not() -> None:
    class Never(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            raise AssertionError

    assert len(to_observation(Never(), lambda n: (torch.rand(n),), run=False).calls) == 2
    with pytest.raises(UsageError, match="says AssertionError"):
        to_observation(Never(), lambda n: (torch.rand(n),))


def test_sets_of_a_function_are_sets() -> None:
    sets = sets_of(Sum(), make)
    assert [set(kwargs) for _, kwargs in sets] == [{"mask", "n"}] * 2
    given = [(torch.rand(2),)]
    assert sets_of(nn.ReLU(), given) is given
    with observe(nn.ReLU()) as seen:
        pass
    assert sets_of(nn.ReLU(), seen) is seen
