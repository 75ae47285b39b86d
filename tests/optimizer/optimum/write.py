"""Writes the graphs of this folder: tiny models as optimum-onnx exports them.

Made with optimum-onnx 0.1.0, transformers 4.57.6 and torch 2.13.0, which do not go together with
the versions that this project is developed with; so the files are kept.

    python write.py FOLDER [--hidden 16] [--layers 1]
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from typing import Any

import onnx
import torch
import transformers as hf
from optimum.exporters.onnx import onnx_export_from_model

WITH_PAST = "text-generation-with-past"
BOTH = "text2text-generation-with-past"


def models(hidden: int, layers: int) -> dict[str, tuple[str, str, str, Any, Any]]:
    """Task, attention, the file of those written, class and configuration by name."""
    wide, heads, words = 2 * hidden, hidden // 8 if hidden < 64 else hidden // 32, hidden + 3
    text = {
        "vocab_size": words, "hidden_size": hidden, "intermediate_size": wide,
        "num_hidden_layers": layers, "num_attention_heads": heads, "max_position_embeddings": 512,
    }  # fmt: skip
    pair = {
        "vocab_size": words, "d_model": hidden, "encoder_ffn_dim": wide, "decoder_ffn_dim": wide,
        "encoder_layers": layers, "decoder_layers": layers, "encoder_attention_heads": heads,
        "decoder_attention_heads": heads,
    }  # fmt: skip
    gpt2 = hf.GPT2Config(
        vocab_size=words, n_embd=hidden, n_layer=layers, n_head=heads, n_positions=128
    )
    t5 = hf.T5Config(
        vocab_size=words, d_model=hidden, d_kv=hidden // heads, d_ff=wide, num_layers=layers,
        num_heads=heads, decoder_start_token_id=0,
    )  # fmt: skip
    whisper = hf.WhisperConfig(
        max_target_positions=128, pad_token_id=0, bos_token_id=1, eos_token_id=2,
        decoder_start_token_id=1, suppress_tokens=None, begin_suppress_tokens=None, **pair,
    )  # fmt: skip
    grouped = {"num_key_value_heads": heads // 2, **text}
    gemma = hf.GemmaConfig(head_dim=hidden // heads, **grouped)
    bart = hf.BartConfig(max_position_embeddings=128, **pair)
    return {
        "llama_sdpa": (
            WITH_PAST, "sdpa", "model", hf.LlamaForCausalLM, hf.LlamaConfig(**grouped),
        ),
        "gemma_eager": (WITH_PAST, "eager", "model", hf.GemmaForCausalLM, gemma),
        "gpt2_eager": (WITH_PAST, "eager", "model", hf.GPT2LMHeadModel, gpt2),
        "bert_sdpa": ("feature-extraction", "sdpa", "model", hf.BertModel, hf.BertConfig(**text)),
        "bart_merged": (
            BOTH, "eager", "decoder_model_merged", hf.BartForConditionalGeneration, bart,
        ),
        "t5_decoder": (
            BOTH, "eager", "decoder_with_past_model", hf.T5ForConditionalGeneration, t5,
        ),
        "whisper_decoder": (
            "automatic-speech-recognition-with-past", "sdpa", "decoder_model",
            hf.WhisperForConditionalGeneration, whisper,
        ),
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--hidden", type=int, default=16)
    parser.add_argument("--layers", type=int, default=1)
    given = parser.parse_args()
    given.folder.mkdir(parents=True, exist_ok=True)
    for name, made in models(given.hidden, given.layers).items():
        task, attention, wanted, cls, config = made
        torch.manual_seed(0)
        model = cls(config).eval()
        for parameter in model.parameters():
            spread = 0.3 * (16 / given.hidden) ** 0.5
            torch.nn.init.normal_(parameter, 0.5 * (parameter.ndim == 1), spread)
        model.set_attn_implementation(attention)
        with tempfile.TemporaryDirectory() as folder:
            onnx_export_from_model(model, output=Path(folder), task=task, do_validation=False)
            proto = onnx.load(Path(folder) / f"{wanted}.onnx")
        onnx.save(proto, given.folder / f"{name}.onnx")


if __name__ == "__main__":
    main()
