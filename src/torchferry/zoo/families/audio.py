"""Models of sound: one row each."""

from __future__ import annotations

from typing import Any

from torchferry.zoo.families.seq2seq import BART
from torchferry.zoo.family import Family

__all__ = ["AUDIO"]

_TASKS = ("automatic-speech-recognition", "audio-classification", "feature-extraction")
_WAVES: dict[str, Any] = {
    "conv_dim": [16, 24, 24], "conv_kernel": [10, 3, 2], "conv_stride": [5, 2, 2],
    "num_conv_pos_embeddings": 7, "num_conv_pos_embedding_groups": 4, "classifier_proj_size": 16,
    "apply_spec_augment": False,
}  # fmt: skip

AUDIO = (
    Family("hubert", _TASKS, sizes=_WAVES),
    Family("wav2vec2", _TASKS, sizes={**_WAVES, "output_hidden_size": 32}),
    Family("whisper", ("automatic-speech-recognition", "audio-classification"), sizes={
        **BART, "num_mel_bins": 10, "max_source_positions": 24, "max_target_positions": 64,
        "classifier_proj_size": 16, "begin_suppress_tokens": None}),
)  # fmt: skip
