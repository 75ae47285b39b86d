"""Graphs as optimum writes them: attention, rotary embedding and norms are found, numbers stay."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir
import onnxruntime
import pytest

import torchferry as tf
from torchferry.dims import evaluate, parse_size
from torchferry.optimizer.place import all_nodes

FOLDER = Path(__file__).parent / "optimum"
SIZES = [
    {"batch": 2, "new": 3, "past": 5, "encoder": 4},
    {"batch": 1, "new": 1, "past": 7, "encoder": 1},
    {"batch": 3, "new": 4, "past": 0, "encoder": 6},
]
FOUND = {
    "llama_sdpa": {"Attention": 1, "RotaryEmbedding": 2, "RMSNormalization": 3, "QuickGelu": 1},
    "gemma_eager": {"Attention": 1, "RotaryEmbedding": 2, "RMSNormalization": 3, "FastGelu": 1},
    "gpt2_eager": {"Attention": 1, "LayerNormalization": 3, "FastGelu": 1},
    "bert_sdpa": {"Attention": 1, "LayerNormalization": 3, "BiasGelu": 1},
    "bart_merged": {"Attention": 4, "LayerNormalization": 8, "BiasGelu": 2},
    "t5_decoder": {"Attention": 2, "RMSNormalization": 4},
    "whisper_decoder": {"Attention": 2, "LayerNormalization": 4, "BiasGelu": 1},
}
"""How many of which, of one layer; of both branches of bart, one with past and one without."""


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


def opened(model: Path | ir.Model) -> onnxruntime.InferenceSession:
    given = str(model) if isinstance(model, Path) else ir.to_proto(model).SerializeToString()
    return onnxruntime.InferenceSession(given, providers=["CPUExecutionProvider"])


@pytest.mark.parametrize("name", FOUND)
def test_everything_is_found_and_numbers_stay(name: str) -> None:
    path = FOLDER / f"{name}.onnx"
    model = tf.optimize(path)
    counts = Counter(node.op_type for node in all_nodes(model))
    assert {op: counts[op] for op in FOUND[name]} == FOUND[name]
    assert counts["Softmax"] == 0
    known = {str(value.name) for value in model.graph.outputs if "present" in str(value.name)}
    cached = {str(v.name) for n in model.graph if n.op_type == "Concat" for v in n.outputs}
    assert not known & cached  # a cache is made by the node that reads it
    before, after = opened(path), opened(model)
    for sizes in SIZES:
        feeds = feeds_of(before, sizes)
        for want, got in zip(before.run(None, feeds), after.run(None, feeds), strict=True):
            assert want.shape == got.shape
            np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)
            assert not want.size or np.isfinite(want).all()
