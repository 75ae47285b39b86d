"""steal_forward while torch.export and torch.compile trace the watched model."""

from __future__ import annotations

import inspect
from pathlib import Path

import pytest
import torch

from torchferry.dumper.store import read_dump
from torchferry.observer.steal import steal_forward
from torchferry.observer.storage import steal_append
from torchferry.zoo.dummy_llm import dummy_llm


class Doubler(torch.nn.Module):
    def forward(self, x: torch.Tensor, scale: float = 2.0) -> torch.Tensor:
        return x * scale


def lines(capsys: pytest.CaptureFixture[str]) -> list[str]:
    return capsys.readouterr().out.splitlines()


@pytest.mark.parametrize("strict", [False, True])
def test_export_prints_where_it_is_and_stores_nothing(
    strict: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model, inputs = dummy_llm()
    with steal_forward(
        [("m", model), ("m.decoder", model.decoder)], dump_file=tmp_path / "d", verbose=1
    ):
        torch.export.export(model, inputs, strict=strict)
    assert lines(capsys) == [
        "+m -- stolen forward for class LLM -- iteration 0",
        "+m.decoder -- stolen forward for class DecoderLayer -- iteration 0",
        "-- gather stored 0 objects, size=0 Mb",
        "-- dumps stored objects",
        "-- done dump stored objects",
    ]
    assert read_dump(tmp_path / "d") == {}


def test_the_last_line_locates_a_failing_export(capsys: pytest.CaptureFixture[str]) -> None:
    class Bad(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x if x.sum() > 0 else -x

    model = torch.nn.Sequential(torch.nn.ReLU(), Bad(), torch.nn.ReLU())
    expected = inspect.signature(model.forward)
    with (
        steal_forward(model, submodules=True),
        pytest.raises(torch.fx.experimental.symbolic_shapes.GuardOnDataDependentSymNode),
    ):
        torch.export.export(model, (torch.ones(2),), strict=False)
    assert lines(capsys)[-1] == "+1 -- stolen forward for class Bad -- iteration 0"
    assert inspect.signature(model.forward) == expected


def test_compile_prints_and_stores_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    class Model(Doubler):
        def forward(self, x: torch.Tensor, scale: float = 2.0) -> torch.Tensor:
            steal_append("x", x)
            return super().forward(x, scale)

    model = Model()
    x = torch.ones(2)
    with steal_forward(model, dump_file=tmp_path / "d"):
        compiled = torch.compile(model, backend="eager", fullgraph=True)
        assert torch.equal(compiled(x), 2 * x)
        assert lines(capsys) == []
    assert read_dump(tmp_path / "d") == {}
    assert torch.equal(compiled(x), 2 * x)
