"""The ways from a model to something that can be called."""

from __future__ import annotations

from typing import Any

import torch

import torchferry as tf
from torchferry.observer import Observation

WAYS = ("verified", "unverified", "to_onnx", "capture", "onnx_dynamo")


def build(model: torch.nn.Module, sets: list[Any], way: str) -> Any:
    """Export or capture a model of one argument ``x``, whose first dimension is dynamic."""
    if way == "to_onnx":  # nothing runs the model before the trace does
        return tf.to_onnx(model, sets[0], dynamic_shapes={"x": {0: "n"}})
    if way == "capture":
        return tf.capture(model, Observation.from_inputs(model, sets), progress=False)
    exporter = {"exporter": "onnx_dynamo"} if way == "onnx_dynamo" else {}
    return tf.export(model, sets, check=way == "verified", budget=10, progress=False, **exporter)
