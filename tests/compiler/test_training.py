"""Training with both graphs on onnxruntime: step by step the losses are eager's."""

from __future__ import annotations

import copy
import functools
import logging
from typing import Any

import pytest
import torch
from torch import nn

from torchferry.compiler import onnx_custom_backend
from torchferry.optimizer.kernels import library
from torchferry.optimizer.options import OptimizationOptions
from versions import at_least

pytestmark = pytest.mark.usefixtures("fresh")


def convnet() -> nn.Module:
    layers = [nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten()]
    return nn.Sequential(*layers, nn.Dropout(0.2), nn.Linear(8 * 3 * 3, 4))


class Regression(nn.Module):
    """A model that returns its loss."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return nn.functional.mse_loss(self.model(x), torch.ones(x.shape[0], 4))


def losses(
    model: nn.Module,
    batches: list[Any],
    storage: dict[str, Any] | None,
    patterns: str | None = None,
) -> list[float]:
    """The losses of some steps, in eager without a storage."""
    model = copy.deepcopy(model).train()
    run: Any = model
    if storage is not None:
        options = OptimizationOptions(patterns)
        backend = functools.partial(onnx_custom_backend, options=options, storage=storage)
        run = torch.compile(model, backend=backend)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9)
    torch.manual_seed(1)
    found = []
    for batch in batches:
        optimizer.zero_grad()
        loss = run(**batch).loss if isinstance(batch, dict) else run(batch)
        loss.backward()
        optimizer.step()
        found.append(loss.item())
    return found


def sessions_of(
    model: nn.Module, batches: list[Any], patterns: str | None = None
) -> list[dict[str, Any]]:
    """Train in both ways, compare, and tell which sessions there were."""
    storage: dict[str, Any] = {}
    expected, found = losses(model, batches, None), losses(model, batches, storage, patterns)
    assert found == pytest.approx(expected, rel=1e-4)
    assert expected[0] != pytest.approx(expected[-1], rel=1e-3)
    sessions: list[dict[str, Any]] = storage["instance"]
    return sessions


def test_an_mlp() -> None:
    layers = [nn.Linear(16, 16), nn.GELU(), nn.LayerNorm(16), nn.SiLU(), nn.Linear(16, 4)]
    model = Regression(nn.Sequential(*layers))
    sessions = sessions_of(model, [torch.randn(8, 16) for _ in range(4)])
    assert len(sessions) == 2  # forward and backward
    assert len(sessions[0]["input_names"]) == 7  # the parameters are inputs


@pytest.mark.skipif(library.compiler() is None, reason="no C compiler")
def test_an_mlp_with_kernels_of_our_making() -> None:
    layers = [nn.Linear(16, 16), nn.GELU(), nn.LayerNorm(16), nn.SiLU(), nn.Linear(16, 4)]
    model = Regression(nn.Sequential(*layers))
    batches = [torch.randn(8, 16) for _ in range(4)]
    sessions = sessions_of(model, batches, "default+onnxruntime+experimental")
    domains = [{node.domain for node in session["onnx"].graph.node} for session in sessions]
    assert len(domains) == 2
    assert "torchferry.kernels" in domains[1]  # the backward graph has long runs


def test_a_convnet_with_dropout_and_batch_norm(caplog: Any) -> None:
    caplog.set_level(logging.INFO, "torchferry")
    sessions = sessions_of(Regression(convnet()), [torch.randn(4, 3, 8, 8) for _ in range(4)])
    assert len(sessions) >= 2
    assert "aten.native_dropout.default (1x) runs in eager" in caplog.text


@pytest.mark.skipif(not at_least("transformers", "5.0"), reason="Dynamo fails on its masks")
def test_a_tiny_llama() -> None:
    transformers = pytest.importorskip("transformers")
    config = transformers.LlamaConfig(
        hidden_size=32, num_hidden_layers=1, vocab_size=64, intermediate_size=64,
        num_attention_heads=4, num_key_value_heads=2, use_cache=False,
    )  # fmt: skip
    ids = [torch.randint(0, 64, (2, 9)) for _ in range(3)]
    batches = [{"input_ids": x, "labels": x} for x in ids]
    sessions = sessions_of(transformers.LlamaForCausalLM(config), batches)
    assert len(sessions) == 2
