from __future__ import annotations

import copy
import inspect
import io
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


class Scale(torch.nn.Module):
    """Has state, so that it matters which module runs."""

    def __init__(self, factor: float) -> None:
        super().__init__()
        self.factor = torch.nn.Parameter(torch.tensor(factor))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.factor


class ScaleMore(Scale):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(x) + 1


def _loaded(module: torch.nn.Module) -> Any:
    file = io.BytesIO()
    torch.save(module, file)
    file.seek(0)
    with torch.serialization.safe_globals([Scale, set]):
        return torch.load(file, weights_only=True)


COPIES = [
    copy.copy,
    copy.deepcopy,
    lambda module: module._replicate_for_data_parallel(),
    _loaded,
]


@pytest.mark.parametrize("copied", COPIES, ids=["copy", "deepcopy", "replica", "saved"])
def test_a_copy_made_in_the_block_is_a_module_of_its_own(copied: Any) -> None:
    model = Scale(2.0)
    tap = Listener(model)
    with tapped([tap]):
        twin = copied(model)
        twin._parameters = {"factor": torch.nn.Parameter(torch.tensor(5.0))}
        vars(twin).pop("factor", None)  # where a replica has it
        assert twin(torch.ones(1)).item() == 5
        assert tap.heard == []
        assert model(torch.ones(1)).item() == 2
    assert twin(torch.ones(1)).item() == 5
    assert type(twin) is Scale
    assert "forward" not in vars(twin)
    assert len(tap.heard) == 2


def test_a_copy_of_a_method_set_on_the_instance_is_bound_to_the_copy(model: Doubler) -> None:
    vars(model)["forward"] = model.forward
    tap = Listener(model)
    with tapped([tap]):
        twin = copy.deepcopy(model)
        assert twin.forward.__self__ is twin
        assert torch.equal(twin(torch.ones(1)), torch.full((1,), 2.0))
    assert tap.heard == []
    assert torch.equal(twin(torch.ones(1)), torch.full((1,), 2.0))


def test_other_modules_of_the_class_and_of_its_subclasses_are_not_heard() -> None:
    model, other, more = Scale(2.0), Scale(3.0), ScaleMore(4.0)
    one, two = Listener(model), Listener(more)
    with tapped([one]):
        assert (other(torch.ones(1)).item(), more(torch.ones(1)).item()) == (3, 5)
        assert one.heard == []
        with tapped([two]):
            assert more(torch.ones(1)).item() == 5
    assert (len(one.heard), len(two.heard)) == (0, 2)  # not again for super().forward


def test_a_class_is_as_it_was_afterwards(model: Doubler) -> None:
    forward, attributes = vars(Doubler)["forward"], list(vars(Doubler))
    with tapped([Listener(model)]):
        assert vars(Doubler)["forward"] is not forward
        with tapped([Listener(model), Listener(Doubler())]):
            pass
        assert "forward" not in vars(model)
    assert vars(Doubler)["forward"] is forward
    assert list(vars(Doubler)) == attributes


def test_a_module_without_the_method_leaves_nn_module_alone() -> None:
    forward = vars(torch.nn.Module)["forward"]
    with tapped([Listener(torch.nn.ModuleList())]):
        assert vars(torch.nn.Module)["forward"] is forward


def test_a_class_that_is_patched_in_the_block_runs_the_patch(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model = Scale(2.0)
    tap = Listener(model)
    with tapped([tap]):
        monkeypatch.setattr(Scale, "forward", lambda self, x: x - self.factor)
        assert model(torch.ones(1)).item() == -1
    assert model(torch.ones(1)).item() == -1
    monkeypatch.undo()  # puts back what it found, which is the function of the block
    assert model(torch.ones(1)).item() == 2
    assert tap.heard == []


def test_a_patch_that_ends_in_the_block_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    model = Scale(2.0)
    original = Scale.forward
    with monkeypatch.context() as patch:
        patch.setattr(Scale, "forward", lambda self, x: x - self.factor)
        block = tapped([Listener(model)])
        block.__enter__()
    assert model(torch.ones(1)).item() == 2
    block.__exit__(None, None, None)
    assert Scale.forward is original


def test_modules_may_change_their_class_in_the_block() -> None:
    lazy = torch.nn.LazyLinear(3)
    linear = torch.nn.Linear(2, 2)
    one, two = Listener(lazy), Listener(linear)
    with tapped([one, two]):
        lazy(torch.ones(2, 4))
        lazy(torch.ones(5, 4))
        torch.nn.utils.parametrizations.orthogonal(linear)
        linear(torch.ones(1, 2))
    assert (len(one.heard), len(two.heard)) == (4, 2)
    assert type(lazy) is torch.nn.Linear
    assert isinstance(linear, torch.nn.Linear)


def test_a_graph_module_may_be_changed_in_the_block() -> None:
    traced = torch.fx.symbolic_trace(Doubler())
    tap = Listener(traced)
    with tapped([tap]):
        assert traced(torch.ones(1)).item() == 2
        next(node for node in traced.graph.nodes if node.op == "call_function").args = (
            next(iter(traced.graph.nodes)), 7,
        )  # fmt: skip
        traced.recompile()
        assert traced(torch.ones(1)).item() == 7
    assert traced(torch.ones(1)).item() == 7
    assert len(tap.heard) == 2


def test_a_class_with_slots_is_heard() -> None:
    class Slotted(Doubler):
        __slots__ = ("extra",)

    model = Slotted()
    model.extra = 1
    tap = Listener(model)
    with tapped([tap]):
        model(torch.ones(1))
    assert len(tap.heard) == 2
    assert model.extra == 1
