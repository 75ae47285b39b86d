"""Transforms and models of torchaudio for field.py, with random weights."""

from __future__ import annotations

import importlib
from typing import Any

import torch
from field_images import Made, images
from torch import nn

__all__ = ["AUDIO", "WAVES", "audio", "transform"]

WAVES = {"Spectrogram": {}, "MelSpectrogram": {"n_fft": 128, "n_mels": 20}, "MFCC": {},
         "AmplitudeToDB": {}, "MuLawEncoding": {}, "Resample": {"orig_freq": 3, "new_freq": 2},
         "LFCC": {}, "Vol": {"gain": 2.0}, "Preemphasis": {}, "Deemphasis": {},
         "SlidingWindowCmn": {}, "ComputeDeltas": {}}  # fmt: skip


def transform(name: str, size: dict[str, Any]) -> Made:
    if name == "MFCC":
        size = {"n_mfcc": 10, "melkwargs": {"n_fft": 128, "n_mels": 20}}
    if name == "LFCC":
        size = {"n_lfcc": 10, "n_filter": 20, "speckwargs": {"n_fft": 128}}
    model = getattr(importlib.import_module("torchaudio.transforms"), name)(**size)
    return model, [(torch.rand(2, 1600) - 0.5,), (torch.rand(3, 2400) - 0.5,)]


AUDIO = """
Conformer ConvTasNet DeepSpeech Wav2Letter wav2vec2 WaveRNN Emformer Tacotron2
"""


class Speaks(nn.Module):
    """Tacotron 2 as it is trained: with the frames that it should find."""

    def __init__(self, make: Any) -> None:
        super().__init__()
        self.model = make(
            n_mels=8, n_symbol=20, symbol_embedding_dim=16, encoder_embedding_dim=16,
            attention_rnn_dim=16, decoder_rnn_dim=16, prenet_dim=8, postnet_embedding_dim=8,
            attention_hidden_dim=8, attention_location_n_filter=4,
        )  # fmt: skip
        for module in self.model.modules():
            if type(module).__name__ == "_Prenet":  # drops at random, always
                module.forward = lambda x, own=module: [x := f(x).relu() for f in own.layers][-1]

    def forward(self, tokens: Any, lengths: Any, frames: Any, counts: Any) -> Any:
        return self.model(tokens, lengths, frames, counts)[:3]


def audio(name: str) -> Made:
    models = importlib.import_module("torchaudio.models")
    if name == "Conformer":
        sets = [(torch.randn(b, t, 16), torch.full((b,), t)) for b, t in ((2, 20), (3, 30))]
        return models.Conformer(16, 2, 32, 2, 7), sets
    if name == "ConvTasNet":
        model = models.ConvTasNet(2, 16, 32, 3, 32, 16, 3, 2)
        return model, images((2, 1, 800), (3, 1, 1200))
    if name == "DeepSpeech":
        return models.DeepSpeech(16, n_hidden=24, n_class=8), images(
            (2, 1, 20, 16), (3, 1, 30, 16)
        )
    if name == "WaveRNN":
        sets = [
            (torch.rand(b, 1, (t - 4) * 4), torch.rand(b, 1, 8, t)) for b, t in ((2, 9), (3, 12))
        ]
        return models.WaveRNN([2, 2], 8, 4, 1, 16, 16, 5, 8, 16, 16), sets
    if name == "Emformer":
        sets = [(torch.rand(b, 18, 16), torch.full((b,), 16)) for b in (2, 3)]
        return models.Emformer(16, 2, 32, 2, 4, right_context_length=2), sets
    if name == "Tacotron2":
        return Speaks(models.Tacotron2), [
            (torch.randint(0, 20, (b, t)), torch.full((b,), t), torch.randn(b, 8, n),
             torch.full((b,), n)) for b, t, n in ((2, 6, 7), (3, 9, 5))
        ]  # fmt: skip
    if name == "Wav2Letter":
        return models.Wav2Letter(8, "mfcc", 13), images((2, 13, 300), (3, 13, 400))
    layers = [(32, 10, 5), (32, 3, 2), (32, 3, 2)]
    model = models.wav2vec2_model(
        "group_norm", layers, False, 32, 0.0, 15, 4, 2, 2, 0.0, 64, 0.0, 0.0, False, 0.0, 8
    )
    return model, images((2, 1600), (3, 2400))
