from __future__ import annotations

import copy
import inspect
from typing import Any

import pytest
import torch

from torchferry.observer.tap import tapped


class Doubler(torch.nn.Module):
    def forward(self, x: torch.Tensor, *, times: int = 2) -> torch.Tensor:
        return x * times

    @torch.no_grad()
    def halve(self, x: torch.Tensor) -> torch.Tensor:
        return x / 2

    @staticmethod
    def negate(x: torch.Tensor) -> torch.Tensor:
        return -x


class Listener:
    """A tap that writes down what it hears."""

    def __init__(self, module: torch.nn.Module, method: str = "forward", name: str = "") -> None:
        self.module, self.method, self.name = module, method, name
        self.heard: list[Any] = []

    def enter(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> int:
        self.heard.append((f"{self.name}+", args, kwargs))
        return len(self.heard)

    def leave(self, entered: Any, outputs: Any) -> None:
        self.heard.append((f"{self.name}-", entered, outputs))

    def export(self) -> None:
        self.heard.append("export")


@pytest.fixture
def model() -> Doubler:
    return Doubler()


@pytest.mark.parametrize("method", ["forward", "halve", "negate"])
def test_it_hears_the_call_and_changes_nothing(model: Doubler, method: str) -> None:
    signature = inspect.signature(getattr(model, method))
    expected = getattr(model, method)(torch.ones(2))
    tap = Listener(model, method)
    with tapped([tap]):
        assert inspect.signature(getattr(model, method)) == signature
        x = torch.ones(2)
        assert torch.equal(getattr(model, method)(x), expected)
    (_, args, kwargs), (_, entered, outputs) = tap.heard
    assert (args[0] is x, kwargs, entered) == (True, {}, 1)
    assert torch.equal(outputs, expected)
    assert method not in vars(model)


def test_calls_with_and_without_call_are_heard(model: Doubler) -> None:
    tap = Listener(model)
    with tapped([tap]):
        model(torch.ones(1), times=3)
        model.forward(torch.ones(1))
    assert [event[2] for event in tap.heard[::2]] == [{"times": 3}, {}]


@pytest.mark.parametrize("own", ["function", "partial of the method"])
def test_a_method_set_on_the_instance_comes_back(model: Doubler, own: str) -> None:
    if own == "function":
        mine: Any = lambda x, other=None: x + 1  # noqa: E731  # what people write
    else:
        mine = model.forward
    vars(model)["forward"] = mine
    order = list(vars(model))
    tap = Listener(model)
    with tapped([tap]):
        assert inspect.signature(model.forward) == inspect.signature(mine)
        assert torch.equal(model(torch.ones(1)), mine(torch.ones(1)))
    assert len(tap.heard) == 2
    assert vars(model)["forward"] is mine
    assert list(vars(model)) == order


def test_an_exception_of_the_method_passes_and_is_not_left(model: Doubler) -> None:
    tap = Listener(model)
    with pytest.raises(TypeError), tapped([tap]):
        model(torch.ones(1), wrong=1)
    assert [event[0] for event in tap.heard] == ["+"]
    assert "forward" not in vars(model)


def test_when_one_module_cannot_be_tapped_the_others_are_as_before(model: Doubler) -> None:
    with (
        pytest.raises(AttributeError),
        tapped([Listener(model), Listener(Doubler(), "nothing")]),
    ):
        pytest.fail("it must not start")
    assert "forward" not in vars(model)


def test_taps_of_nested_blocks_are_called_from_outside_in_and_back(model: Doubler) -> None:
    heard: list[Any] = []
    outer, inner = Listener(model, name="outer"), Listener(model, name="inner")
    outer.heard = inner.heard = heard
    with tapped([outer]):
        with tapped([inner]):
            model(torch.ones(1))
        model(torch.ones(1))
    names = [event[0] for event in heard]
    assert names == ["outer+", "inner+", "inner-", "outer-", "outer+", "outer-"]
    assert "forward" not in vars(model)


def test_blocks_may_end_in_any_order(model: Doubler) -> None:
    first, second = Listener(model), Listener(model)
    one, two = tapped([first]), tapped([second])
    one.__enter__()
    two.__enter__()
    one.__exit__(None, None, None)
    model(torch.ones(1))
    two.__exit__(None, None, None)
    assert (len(first.heard), len(second.heard)) == (0, 2)
    assert "forward" not in vars(model)


def test_what_replaces_the_method_meanwhile_stays_and_works(model: Doubler) -> None:
    tap, later = Listener(model), Listener(model)
    with tapped([tap]):
        below = model.forward
        vars(model)["forward"] = lambda x: below(x) + 1
        with tapped([later]):
            assert model(torch.ones(1)).item() == 3
    assert (len(tap.heard), len(later.heard)) == (2, 2)
    assert model(torch.ones(1)).item() == 3
    assert len(tap.heard) == 2


def test_a_copy_made_in_the_block_is_a_module_of_its_own(model: Doubler) -> None:
    tap = Listener(model)
    with tapped([tap]):
        twin = copy.deepcopy(model)
        assert twin.forward.__self__ is twin
        assert torch.equal(twin(torch.ones(1)), torch.full((1,), 2.0))
    assert tap.heard == []
    assert torch.equal(twin(torch.ones(1)), torch.full((1,), 2.0))


@pytest.mark.parametrize("strict", [False, True])
def test_torch_export_is_told_of_apart(model: Doubler, strict: bool) -> None:
    tap = Listener(model)
    with tapped([tap]):
        program = torch.export.export(model, (torch.ones(2),), strict=strict)
    assert tap.heard == ["export"]
    expected = torch.export.export(model, (torch.ones(2),), strict=strict)
    assert str(program.graph) == str(expected.graph)


def test_compilers_hear_nothing_and_compile_the_same(model: Doubler) -> None:
    tap = Listener(model)
    with tapped([tap]):
        compiled = torch.compile(model, backend="eager", fullgraph=True)
        assert torch.equal(compiled(torch.ones(2)), torch.full((2,), 2.0))
    assert tap.heard == []
    assert torch.equal(compiled(torch.ones(2)), torch.full((2,), 2.0))


def test_a_method_compiled_before_is_heard_as_a_whole() -> None:
    compiled = torch.compile(Doubler(), backend="eager")
    tap = Listener(compiled)
    with tapped([tap]):
        assert torch.equal(compiled(torch.ones(2)), torch.full((2,), 2.0))
    assert len(tap.heard) == 2
