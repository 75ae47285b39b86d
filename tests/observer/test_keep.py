from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest
import torch

from torchferry.observer.keep import keep, keep_set


def test_a_value_is_copied(caplog: pytest.LogCaptureFixture) -> None:
    x = torch.zeros(2)
    kept = keep({"x": [x, x[1:]]})
    x.fill_(1)
    assert kept["x"][0].tolist() == [0, 0]
    kept["x"][0].fill_(2)
    assert kept["x"][1].tolist() == [2]
    assert not caplog.records


@dataclass
class Later:
    """Its second field has no value yet."""

    a: Any
    b: Any = field(init=False)


def test_what_cannot_be_copied_is_kept_and_told_of(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(_: Any) -> Any:
        raise RuntimeError("no storage")

    monkeypatch.setattr("torchferry.observer.keep.clone", refuse)
    value = [torch.zeros(2)]
    assert keep(value) is keep_set(value) is value
    assert caplog.messages == ["#1[T1s2] is kept, not copied, and may change: no storage"] * 2


def test_what_cannot_be_copied_does_not_stop_the_model() -> None:
    x = torch.ones(2)
    itself: list[Any] = [x]
    itself.append(itself)
    assert keep(itself)[0].tolist() == [1, 1]
    assert keep(Later(x)).a.tolist() == [1, 1]
    assert keep(torch.eye(2).to_sparse()).to_dense().tolist() == [[1, 0], [0, 1]]
    found: list[Any] = []

    def look(y: torch.Tensor) -> torch.Tensor:
        found.append(keep({"y": y}))
        return y.sum()

    assert torch.func.vmap(look)(torch.ones(3, 2)).tolist() == [2, 2, 2]
    assert torch.func.grad(look)(x).tolist() == [1, 1]
    assert [kept["y"].shape for kept in found] == [(2,), (2,)]


def test_objects_given_by_hand_stay_the_same() -> None:
    class Setting:
        """Nobody can look into it."""

    x, setting = torch.zeros(2), Setting()
    args, kwargs = keep_set(((x, [setting]), {"y": x[1:], "s": setting, "n": 3}))
    assert args[1][0] is kwargs["s"] is setting
    assert kwargs["n"] == 3
    args[0].fill_(1)
    assert (kwargs["y"].tolist(), x.tolist()) == ([1], [0, 0])
    assert keep(setting) is not setting
