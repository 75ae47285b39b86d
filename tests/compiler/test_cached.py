from __future__ import annotations

import logging
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from torchferry.compiler import compiled, onnx_custom_backend
from torchferry.compiler.cached import entry_key
from torchferry.optimizer import OptimizationOptions

FOUND = "a graph comes from the cache"


@pytest.fixture(autouse=True)
def folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: Any) -> Path:
    monkeypatch.setenv("TORCHFERRY_CACHE", str(tmp_path))
    torch._dynamo.reset()
    torch.manual_seed(0)
    caplog.set_level(logging.DEBUG, "torchferry")
    return tmp_path / "graphs"


def model() -> nn.Sequential:
    return nn.Sequential(nn.Linear(32, 32), nn.GELU(), nn.Linear(32, 4)).eval()


def again(module: Any, **settings: Any) -> Any:
    """Compile as another process would: dynamo has forgotten what it did."""
    torch._dynamo.reset()

    def backend(graph: Any, args: Any) -> Any:
        return onnx_custom_backend(graph, args, **settings)

    return torch.compile(module, backend=backend)


def test_a_graph_is_compiled_once(
    folder: Path, caplog: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    module, x = model(), torch.randn(3, 32)
    with torch.no_grad():
        torch.testing.assert_close(again(module)(x), module(x))
        assert FOUND not in caplog.text
        assert len(list(folder.iterdir())) == 1
        monkeypatch.setattr(compiled, "translate", None)
        run = again(module)
        for _ in range(2):
            torch.testing.assert_close(run(x), module(x))
    assert caplog.text.count(FOUND) == 1


def test_changed_weights_are_noticed(caplog: Any) -> None:
    module, x = model(), torch.randn(3, 32)
    with torch.no_grad():
        again(module)(x)
        run = again(module)
        run(x)
        assert FOUND in caplog.text
        for change in (lambda w: w.mul_(2), lambda w: w.data.add_(1), lambda w: w.zero_()):
            change(module[0].weight)
            torch.testing.assert_close(run(x), module(x))
        other = model()
        module.load_state_dict(other.state_dict())
        torch.testing.assert_close(run(x), other(x))


def test_other_weights_are_another_entry(folder: Path, caplog: Any) -> None:
    x = torch.randn(3, 32)
    with torch.no_grad():
        for _ in range(2):
            module = model()
            torch.testing.assert_close(again(module)(x), module(x))
    assert len(list(folder.iterdir())) == 2
    assert FOUND not in caplog.text


def test_other_sizes_and_sets_are_other_entries(folder: Path) -> None:
    module = model()
    with torch.no_grad():
        for rows in (1, 3):
            x = torch.randn(rows, 32)
            for patterns in ("default", "default+onnxruntime"):
                run = again(module, options=OptimizationOptions(patterns))
                torch.testing.assert_close(run(x), module(x))
    assert len(list(folder.iterdir())) == 4


@pytest.mark.parametrize("settings", [{"cache": False}, {"storage": {}}])
def test_it_can_be_left_out(folder: Path, settings: dict[str, Any]) -> None:
    with torch.no_grad():
        again(model(), **settings)(torch.randn(3, 32))
    assert not folder.exists()


def test_training_and_varying_sizes_are_compiled_anew(folder: Path) -> None:
    module, x = model(), torch.randn(3, 32)
    again(module)(x).sum().backward()
    torch._dynamo.reset()
    with torch.no_grad():
        run = torch.compile(module, backend=onnx_custom_backend, dynamic=True)
        for rows in (3, 5):
            x = torch.randn(rows, 32)
            torch.testing.assert_close(run(x), module(x))
    assert not folder.exists()


def test_a_number_that_the_graph_has_as_a_constant_is_no_other(caplog: Any) -> None:
    def scaled(x: torch.Tensor, factor: float) -> torch.Tensor:
        return x * factor

    run, x = again(scaled), torch.ones(2)
    for factor in (1, 2.5, 7.25, 7.5):  # from the second float on, dynamo asks for any float
        torch.testing.assert_close(run(x, factor), x * factor)


def test_layers_that_share_a_graph_each_find_their_entry(caplog: Any) -> None:
    layers = [model() for _ in range(2)]

    def run_all(run: Any, x: torch.Tensor) -> list[torch.Tensor]:
        return [run(layer, x) for layer in layers]

    x = torch.randn(2, 32)
    with torch.no_grad():
        expected = [layer(x) for layer in layers]
        for _ in range(2):
            found = run_all(again(lambda layer, x: layer(x)), x)
            torch.testing.assert_close(found, expected)
    assert FOUND in caplog.text


@pytest.mark.slow
def test_a_second_process_starts_from_the_disk(folder: Path) -> None:
    code = (
        "import logging, sys, torch\n"
        "logging.basicConfig(level=logging.DEBUG, stream=sys.stdout)\n"
        "torch.manual_seed(0)\n"
        "module = torch.nn.Linear(40, 40)\n"
        "x = torch.randn(2, 40)\n"
        "with torch.no_grad():\n"
        "    found = torch.compile(module, backend='torchferry')(x)\n"
        "    torch.testing.assert_close(found, module(x))\n"
        "print('torchferry.converter' in sys.modules)\n"
    )
    said = []
    for _ in range(2):
        command = [sys.executable, "-c", code]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        said.append(done.stdout)
    assert FOUND not in said[0]
    assert FOUND in said[1]
    # nothing that translates graphs was loaded
    assert said[1].split()[-1] == "False"


def test_an_entry_is_named_by_graph_and_weights() -> None:
    weight = torch.randn(3)
    assert entry_key("k", [weight]) == entry_key("k", [weight.clone()])
    assert entry_key("k", [weight]) not in (entry_key("k", [weight + 1]), entry_key("l", [weight]))
