"""Running what was converted: saved to a file and called through onnxruntime."""

import pytest

from torchferry.graph import io
from torchferry.runner import Session


@pytest.fixture
def session(tmp_path):
    """``session(model)`` saves an ``ir.Model`` and loads it in onnxruntime."""
    counter = iter(range(100))

    def load(model):
        path = tmp_path / f"model{next(counter)}.onnx"
        io.save(model, path)
        return Session(path)

    return load
