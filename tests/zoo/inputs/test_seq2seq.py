from __future__ import annotations

from typing import Any

import pytest
import torch
import transformers
from torch import nn

from torchferry.errors import UsageError
from torchferry.zoo.inputs.seq2seq import SIZES, decode_sets, encoder_sets, prefill_sets
from torchferry.zoo.weights import seeded


def t5(**changes: Any) -> nn.Module:
    config = transformers.T5Config(
        vocab_size=9, d_model=16, d_kv=4, d_ff=8, num_layers=1, num_heads=2, **changes
    )
    return transformers.T5ForConditionalGeneration(config).eval()


def test_a_step_continues_what_a_whole_pass_computes() -> None:
    model = t5()
    steps = decode_sets(encoder_sets)(model, seeded(0))
    wholes = prefill_sets(encoder_sets)(model, seeded(0))
    for step, whole in zip(steps, wholes, strict=True):
        assert torch.equal(step["attention_mask"], whole["attention_mask"])
        new = step["decoder_input_ids"]
        assert torch.equal(whole["decoder_input_ids"][:, -new.shape[1] :], new)
        with torch.no_grad():
            expected = model(**whole).logits[:, -new.shape[1] :]
            assert torch.allclose(model(**step).logits, expected, atol=1e-5)


def test_sizes_and_the_first_token() -> None:
    model = t5(decoder_start_token_id=7)
    for inputs, (batch, tokens, new, past) in zip(
        prefill_sets(encoder_sets)(model, seeded(0)), SIZES, strict=True
    ):
        assert inputs["input_ids"].shape == (batch, tokens)
        assert inputs["decoder_input_ids"].shape == (batch, new + past)
        assert set(inputs["decoder_input_ids"][:, 0].tolist()) == {7}


def test_a_model_without_a_cache_is_told_so() -> None:
    with pytest.raises(UsageError, match="returns no cache"):
        decode_sets(encoder_sets)(t5(use_cache=False), seeded(0))
