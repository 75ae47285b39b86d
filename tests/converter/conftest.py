"""Running what was converted: saved to a file and called through onnxruntime."""

import pytest
import torch

from torchferry.graph import io
from torchferry.runner import Session

# What test modules draw when they are collected, and what tests draw, is the same in every run.
torch.manual_seed(0)


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(0)


@pytest.fixture
def session(tmp_path):
    """``session(model)`` saves an ``ir.Model`` and loads it in onnxruntime."""
    counter = iter(range(100))

    def load(model):
        path = tmp_path / f"model{next(counter)}.onnx"
        io.save(model, path)
        return Session(path)

    return load
