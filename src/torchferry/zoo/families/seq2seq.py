"""Encoder-decoders of text: one row each."""

from __future__ import annotations

from typing import Any

from torchferry.zoo.family import Family

__all__ = ["SEQ2SEQ"]

_TASKS = ("text2text-generation",)
BART: dict[str, Any] = {
    "encoder_layers": 2,
    "encoder_attention_heads": 4,
    "encoder_ffn_dim": 48,
    "decoder_layers": 2,
    "decoder_attention_heads": 4,
    "decoder_ffn_dim": 48,
    "decoder_start_token_id": 2,
}

SEQ2SEQ = (
    Family("bart", _TASKS, sizes=BART),
    Family("marian", _TASKS, sizes={**BART, "decoder_vocab_size": 99}),
    Family("mbart", _TASKS, sizes=BART, since="5.0"),
    Family("t5", _TASKS, sizes={"d_ff": 48, "num_decoder_layers": 2}),
)
