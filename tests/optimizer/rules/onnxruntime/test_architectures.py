"""What is found in the graphs that torch.onnx writes of Hugging Face's architectures."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx_ir as ir
import onnxruntime
import pytest
import torch

import torchferry as tf

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]  # torch.onnx's own

SIZES = {
    "vocab_size": 60, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2,
    "num_attention_heads": 4,
}  # fmt: skip
GROUPED = {**SIZES, "num_key_value_heads": 2}
GPT2 = {"vocab_size": 60, "n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 64}
T5 = {
    "vocab_size": 60, "d_model": 32, "d_kv": 8, "d_ff": 48, "num_layers": 2, "num_heads": 4,
    "decoder_start_token_id": 0,
}  # fmt: skip
WHISPER = {
    "vocab_size": 60, "d_model": 32, "encoder_layers": 2, "decoder_layers": 2,
    "encoder_attention_heads": 4, "decoder_attention_heads": 4, "encoder_ffn_dim": 48,
    "decoder_ffn_dim": 48, "num_mel_bins": 8, "max_source_positions": 16,
    "max_target_positions": 16, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2,
    "decoder_start_token_id": 1,
}  # fmt: skip
VIT = {**SIZES, "image_size": 16, "patch_size": 8}


@dataclass
class Row:
    """An architecture, and how many nodes are found of each operator."""

    model: str
    config: dict[str, Any]
    found: dict[str, int]
    inputs: str = "text"
    attentions: tuple[str, ...] = ("eager", "sdpa")
    without: tuple[str, ...] = ("Softmax", "ReduceMean", "ReduceMax", "IsNaN")


def turned(layers: int) -> dict[str, int]:
    return {"Attention": layers, "RotaryEmbedding": 2 * layers}


LLAMA = turned(2) | {"RMSNormalization": 5, "QuickGelu": 2}
ROWS = {
    "llama": Row("LlamaForCausalLM", GROUPED, LLAMA),
    "mistral, sliding window": Row("MistralForCausalLM", GROUPED | {"sliding_window": 4}, LLAMA),
    "qwen3, norms of heads": Row(
        "Qwen3ForCausalLM", GROUPED | {"head_dim": 8}, LLAMA | {"RMSNormalization": 9}
    ),
    "phi3, packed": Row("Phi3ForCausalLM", GROUPED | {"pad_token_id": 0}, LLAMA),
    # Older kernels cap the scores when the mask is added already: it stays as it is.
    "gemma2, capped": Row(
        "Gemma2ForCausalLM", GROUPED | {"head_dim": 8, "sliding_window": 4},
        {"RotaryEmbedding": 4, "RMSNormalization": 9, "FastGelu": 2, "Attention": 0, "Softmax": 2},
        attentions=("eager",), without=("ReduceMean",),
    ),
    "gpt2": Row("GPT2LMHeadModel", GPT2, {"Attention": 2, "LayerNormalization": 5, "FastGelu": 2}),
    "gpt_neox, turned in part": Row(
        "GPTNeoXForCausalLM", SIZES, turned(2) | {"LayerNormalization": 3, "BiasGelu": 2}
    ),
    "bert": Row("BertModel", SIZES, {"Attention": 2, "LayerNormalization": 5, "BiasGelu": 2}),
    "t5, relative positions": Row(
        "T5ForConditionalGeneration", T5, {"Attention": 6, "RMSNormalization": 12}, "both"
    ),
    "whisper": Row(
        "WhisperForConditionalGeneration", WHISPER,
        {"Attention": 6, "LayerNormalization": 12, "BiasGelu": 4}, "sound",
    ),
    "vit": Row("ViTModel", VIT, {"Attention": 2, "LayerNormalization": 5, "BiasGelu": 2}, "image"),
}  # fmt: skip


def ids(length: int) -> torch.Tensor:
    return torch.randint(3, 50, (2, length))


def inputs_of(kind: str) -> dict[str, torch.Tensor]:
    text = {"input_ids": ids(7), "attention_mask": torch.ones(2, 7, dtype=torch.int64)}
    text["attention_mask"][0, 5:] = 0
    return {
        "text": text,
        "both": text | {"decoder_input_ids": ids(5)},
        "sound": {"input_features": torch.randn(2, 8, 32), "decoder_input_ids": ids(5)},
        "image": {"pixel_values": torch.randn(2, 3, 16, 16)},
    }[kind]


class First(torch.nn.Module):
    """The first output of a model, without a cache."""

    def __init__(self, model: torch.nn.Module, names: list[str]) -> None:
        super().__init__()
        self.model, self.names = model, names
        self.options = {} if "pixel_values" in names or "Bert" in type(model).__name__ else {
            "use_cache": False
        }  # fmt: skip

    def forward(self, *tensors: torch.Tensor) -> torch.Tensor:
        given = dict(zip(self.names, tensors, strict=True))
        return self.model(**given, **self.options)[0]


def written(row: Row, attention: str, *, optimize: bool):
    """The graph, the inputs, and what PyTorch makes of them."""
    import transformers

    torch.manual_seed(0)
    kind = getattr(transformers, row.model)
    model = kind._from_config(kind.config_class(**row.config), attn_implementation=attention)
    inputs = inputs_of(row.inputs)
    module = First(model, list(inputs)).eval()
    batch, known = torch.export.Dim("batch"), {}
    dims = [
        {0: batch, 1: known.setdefault(n := f"s{x.shape[1]}", torch.export.Dim(n))}
        if x.ndim == 2 else {0: batch}
        for x in inputs.values()
    ]  # fmt: skip
    with torch.no_grad():
        want = module(*inputs.values())
        program = torch.onnx.export(
            module, tuple(inputs.values()), dynamic_shapes=(tuple(dims),), dynamo=True,
            verbose=False, optimize=optimize,
        )  # fmt: skip
    return program.model, list(inputs.values()), want.numpy()


@pytest.mark.parametrize("optimize", [False, True], ids=["plain", "optimized"])
@pytest.mark.parametrize(
    ("name", "attention"), [(name, one) for name, row in ROWS.items() for one in row.attentions]
)
def test_what_is_found(name: str, attention: str, optimize: bool) -> None:
    row = ROWS[name]
    model, inputs, want = written(row, attention, optimize=optimize)
    tf.optimize(model)
    counts = Counter(node.op_type for node in model.graph.all_nodes())
    assert {operator: counts[operator] for operator in row.found} == row.found
    assert not [operator for operator in row.without if counts[operator]]
    session = onnxruntime.InferenceSession(
        ir.to_proto(model).SerializeToString(), providers=["CPUExecutionProvider"]
    )
    names = [item.name for item in session.get_inputs()]
    feeds = {n: value.numpy() for n, value in zip(names, inputs, strict=True)}
    (got,) = session.run(None, feeds)
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5 * np.abs(want).max())
