"""Writes the graphs of this folder: tiny models as optimum-onnx exports them.

Made with optimum-onnx 0.1.0, transformers 4.57.6 and torch 2.13.0, which do not go together with
the versions that this project is developed with; so the files are kept.

    python write.py FOLDER
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import onnx
import torch
import transformers as hf
from optimum.exporters.onnx import onnx_export_from_model

TEXT = {"vocab_size": 19, "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 1,
        "num_attention_heads": 2, "max_position_embeddings": 32}  # fmt: skip
WITH_PAST = "text-generation-with-past"
GPT2 = hf.GPT2Config(vocab_size=19, n_embd=16, n_layer=1, n_head=2, n_positions=32)
BART = hf.BartConfig(
    vocab_size=19, d_model=16, encoder_ffn_dim=24, decoder_ffn_dim=24, encoder_layers=1,
    decoder_layers=1, encoder_attention_heads=2, decoder_attention_heads=2,
    max_position_embeddings=32,
)  # fmt: skip
T5 = hf.T5Config(vocab_size=19, d_model=16, d_kv=8, d_ff=24, num_layers=1, num_heads=2,
                 decoder_start_token_id=0)  # fmt: skip
WHISPER = hf.WhisperConfig(
    vocab_size=19, d_model=16, encoder_ffn_dim=24, decoder_ffn_dim=24, encoder_layers=1,
    decoder_layers=1, encoder_attention_heads=2, decoder_attention_heads=2,
    max_target_positions=32, pad_token_id=0, bos_token_id=1, eos_token_id=2,
    decoder_start_token_id=1, suppress_tokens=None, begin_suppress_tokens=None,
)  # fmt: skip
MODELS = {
    "llama_sdpa": (
        WITH_PAST, "sdpa", "model", hf.LlamaForCausalLM,
        hf.LlamaConfig(num_key_value_heads=1, **TEXT),
    ),
    "gemma_eager": (
        WITH_PAST, "eager", "model", hf.GemmaForCausalLM,
        hf.GemmaConfig(num_key_value_heads=1, head_dim=8, **TEXT),
    ),
    "gpt2_eager": (WITH_PAST, "eager", "model", hf.GPT2LMHeadModel, GPT2),
    "bert_sdpa": ("feature-extraction", "sdpa", "model", hf.BertModel, hf.BertConfig(**TEXT)),
    "bart_merged": (
        "text2text-generation-with-past", "eager", "decoder_model_merged",
        hf.BartForConditionalGeneration, BART,
    ),
    "t5_decoder": (
        "text2text-generation-with-past", "eager", "decoder_with_past_model",
        hf.T5ForConditionalGeneration, T5,
    ),
    "whisper_decoder": (
        "automatic-speech-recognition-with-past", "sdpa", "decoder_model",
        hf.WhisperForConditionalGeneration, WHISPER,
    ),
}  # fmt: skip


def main(folder: Path) -> None:
    for name, (task, attention, wanted, cls, config) in MODELS.items():
        torch.manual_seed(0)
        model = cls(config).eval()
        for parameter in model.parameters():
            torch.nn.init.normal_(parameter, 0.5 * (parameter.ndim == 1), 0.3)
        model.set_attn_implementation(attention)
        with tempfile.TemporaryDirectory() as made:
            onnx_export_from_model(model, output=Path(made), task=task, do_validation=False)
            proto = onnx.load(Path(made) / f"{wanted}.onnx")
        onnx.save(proto, folder / f"{name}.onnx")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
