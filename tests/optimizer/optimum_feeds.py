"""Inputs of the graphs that optimum writes."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnxruntime

from torchferry.dims import evaluate, parse_size

__all__ = ["feeds_of"]


def feeds_of(session: onnxruntime.InferenceSession, sizes: dict[str, int]) -> dict[str, Any]:
    """Random inputs; of two rows, the first is padded at its start."""
    values = {
        "batch_size": sizes["batch"], "sequence_length": sizes["new"],
        "decoder_sequence_length": sizes["new"], "past_sequence_length": sizes["past"],
        "past_decoder_sequence_length": sizes["past"],
        "encoder_sequence_length": sizes["encoder"],
        "encoder_sequence_length_out": sizes["encoder"],
    }  # fmt: skip
    random = np.random.default_rng(0)
    feeds: dict[str, Any] = {}
    for item in session.get_inputs():
        shape = [evaluate(parse_size(str(size)), values) for size in item.shape]
        if item.type == "tensor(float)":
            feeds[item.name] = random.standard_normal(shape, np.float32)
        elif item.type == "tensor(bool)":
            feeds[item.name] = np.full(shape, sizes["past"] > 0)
        elif "mask" in item.name:
            feeds[item.name] = np.ones(shape, np.int64)
            feeds[item.name][0, : shape[1] // 2] = 0
        elif "position" in item.name:
            places = np.arange(sizes["past"], sizes["past"] + sizes["new"])
            feeds[item.name] = np.broadcast_to(places, shape)
        else:
            feeds[item.name] = random.integers(0, 2, shape)
    return feeds
