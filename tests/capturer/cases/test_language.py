"""Language models with caches: one program for prefill and decode, right at sizes 0 and 1 too."""

from __future__ import annotations

import inspect
from typing import Any

import pytest
import torch
from transformers import (
    LlamaConfig,
    LlamaForCausalLM,
    MixtralConfig,
    MixtralForCausalLM,
    T5Config,
    T5ForConditionalGeneration,
)

from torchferry.capturer.trial.agreement import run_program
from torchferry.values import make_dynamic_cache
from torchferry.values.clone import clone

# forward's own name for it, which changed in transformers 5.24.
CACHE = (
    "cache"
    if "cache" in inspect.signature(LlamaForCausalLM.forward).parameters
    else ("past_key_values")
)
SIZES: dict[str, Any] = {
    "vocab_size": 64, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2,
    "num_attention_heads": 4, "num_key_value_heads": 2,
}  # fmt: skip


def decode(batch: int, length: int, past: int, name: str = CACHE) -> dict[str, Any]:
    pairs = [(torch.randn(batch, 2, past, 8), torch.randn(batch, 2, past, 8)) for _ in range(2)]
    mask = torch.ones(batch, past + length, dtype=torch.int64)
    mask[0, : past // 2] = 0
    return {"input_ids": torch.randint(0, 64, (batch, length)), "attention_mask": mask,
            name: make_dynamic_cache(pairs)}  # fmt: skip


@pytest.fixture(scope="module")
def llama() -> LlamaForCausalLM:
    torch.manual_seed(0)
    return LlamaForCausalLM(LlamaConfig(**SIZES)).eval()


def test_one_program_for_an_empty_cache_one_token_and_one_row(llama, captured):
    found = captured(llama, [decode(2, 4, 3), decode(1, 6, 0), decode(1, 1, 6), decode(3, 1, 0)])
    assert found.patches == ()


def test_the_cache_object_of_a_prefill_that_holds_nothing_yet(llama, captured):
    from transformers import DynamicCache

    prefill = [
        {"input_ids": torch.randint(0, 64, (b, n)), CACHE: DynamicCache(config=llama.config)}
        for b, n in ((2, 5), (3, 7), (1, 2))
    ]
    captured(llama, prefill)


def test_the_old_name_of_the_cache(llama, captured):
    found = captured(
        llama, [decode(2, 3, 5, "past_key_values"), decode(3, 1, 9, "past_key_values")]
    )
    inputs = decode(1, 2, 4)
    got = run_program(found.program, (), clone(inputs))
    torch.testing.assert_close(got.logits, llama(**inputs).logits)


@pytest.mark.slow
def test_operators_can_be_taken_apart(llama, captured):
    # With the cache as transformers registers it this is a SpecViolationError.
    found = captured(llama, [decode(2, 4, 3), decode(3, 2, 5)], decompose=True)
    targets = {str(node.target) for node in found.program.graph.nodes}
    assert "aten.linear.default" not in targets


@pytest.mark.slow
@pytest.mark.parametrize("experts", ["grouped_mm", "batched_mm"])
def test_a_mixture_of_experts(experts, captured):
    torch.manual_seed(0)
    config = MixtralConfig(**SIZES, num_local_experts=4, experts_implementation=experts)
    sets = [{"input_ids": torch.randint(0, 64, (b, n)), "use_cache": False}
            for b, n in ((2, 5), (3, 9), (1, 1))]  # fmt: skip
    captured(MixtralForCausalLM(config), sets)


@pytest.fixture(scope="module")
def t5() -> T5ForConditionalGeneration:
    torch.manual_seed(0)
    return T5ForConditionalGeneration(
        T5Config(vocab_size=60, d_model=16, d_kv=8, d_ff=24, num_layers=2, num_heads=2,
                 decoder_start_token_id=0)
    ).eval()  # fmt: skip


def padded(batch: int, length: int) -> dict[str, Any]:
    mask = torch.ones(batch, length, dtype=torch.int64)
    mask[0, length // 2 :] = 0
    return {"input_ids": torch.randint(1, 60, (batch, length)), "attention_mask": mask}


@pytest.mark.slow
def test_t5_without_a_cache(t5, captured):
    sets = [
        {**padded(b, n), "decoder_input_ids": torch.randint(1, 60, (b, m)), "use_cache": False}
        for b, n, m in ((2, 7, 3), (3, 12, 5), (1, 4, 1))
    ]
    found = captured(t5, sets)
    outputs = found.program.graph_signature.user_outputs
    assert len(outputs) == 2  # logits and what the encoder gives: no cache


def test_t5_encoder(t5, captured):
    captured(t5.encoder, [padded(2, 7), padded(3, 12), padded(1, 1)])
