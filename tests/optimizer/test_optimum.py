"""Graphs as optimum writes them: attention, rotary embedding and norms are found, numbers stay."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import onnx_ir as ir
import onnxruntime
import pytest
from optimum_feeds import feeds_of

import torchferry as tf
from torchferry.graph.runtime import HIDDEN_ROWS
from torchferry.optimizer.place import all_nodes
from torchferry.optimizer.plan import plan_of, run_plan
from torchferry.optimizer.tally import Tally
from versions import can

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
CLEARED = {"llama_sdpa": 1, "whisper_decoder": 1}
"""Attention whose rows of NaN are cleared, which some versions of onnxruntime make themselves."""


def opened(model: Path | ir.Model) -> onnxruntime.InferenceSession:
    given = str(model) if isinstance(model, Path) else ir.to_proto(model).SerializeToString()
    return onnxruntime.InferenceSession(given, providers=["CPUExecutionProvider"])


@pytest.mark.sample(3)
@pytest.mark.parametrize("name", FOUND)
def test_everything_is_found_and_numbers_stay(name: str) -> None:
    path = FOLDER / f"{name}.onnx"
    model = tf.optimize(path)
    counts = Counter(node.op_type for node in all_nodes(model))
    left = 0 if can(HIDDEN_ROWS) else CLEARED.get(name, 0)
    found = {**FOUND[name], "Attention": FOUND[name]["Attention"] - left}
    assert {op: counts[op] for op in found} == found
    assert counts["Softmax"] == left
    known = {str(value.name) for value in model.graph.outputs if "present" in str(value.name)}
    cached = {str(v.name) for n in model.graph if n.op_type == "Concat" for v in n.outputs}
    assert left or not known & cached  # a cache is made by the node that reads it
    again = Tally()
    run_plan(ir.from_proto(ir.to_proto(model)), plan_of("default+onnxruntime"), again)
    assert not again.applied
    before, after = opened(path), opened(model)
    for sizes in SIZES:
        feeds = feeds_of(before, sizes)
        for want, got in zip(before.run(None, feeds), after.run(None, feeds), strict=True):
            assert want.shape == got.shape
            np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)
            assert not want.size or np.isfinite(want).all()
