from __future__ import annotations

from typing import Any

import pytest
import torch
import transformers
from torch import nn

from torchferry.errors import UsageError
from torchferry.zoo.inputs.text import (
    cache_name,
    decoder_inputs,
    is_recurrent,
    pad_token,
    parameters_of,
    run_quietly,
    token_ids,
)
from torchferry.zoo.weights import seeded
from versions import at_least

SIZES: dict[str, Any] = {"vocab_size": 9, "hidden_size": 16, "num_hidden_layers": 1}


def llama(**changes: Any) -> nn.Module:
    heads = {"num_attention_heads": 2, "num_key_value_heads": 1, "intermediate_size": 8}
    return transformers.LlamaForCausalLM(transformers.LlamaConfig(**SIZES, **heads, **changes))


def mamba() -> nn.Module:
    config = transformers.MambaConfig(**SIZES, state_size=4, time_step_rank=2)
    return transformers.MambaForCausalLM(config).eval()


def test_no_token_is_padding() -> None:
    model = llama(pad_token_id=4)
    assert pad_token(model) == 4
    ids = token_ids(model, (40, 40), seeded(0))
    assert sorted(ids.unique().tolist()) == [0, 1, 2, 3, 5, 6, 7, 8]
    assert pad_token(llama()) == 0


def test_the_cache_has_the_name_that_forward_has() -> None:
    assert cache_name(llama()) in parameters_of(llama())
    with pytest.raises(UsageError, match="no inputs are known for Linear"):
        cache_name(nn.Linear(1, 1))


@pytest.mark.skipif(not at_least("transformers", "5.10"), reason="its states are other caches")
def test_a_state_takes_one_token_and_no_mask() -> None:
    model = mamba()
    inputs = decoder_inputs(model, batch=2, sequence=5, past=3, generator=seeded(0))
    assert is_recurrent(inputs["past_key_values"])
    assert list(inputs) == ["input_ids", "past_key_values"]
    assert inputs["input_ids"].shape == (2, 1)


def test_a_run_keeps_the_mode_and_says_what_failed() -> None:
    model = llama().train()
    outputs, cache = run_quietly(model, {"input_ids": torch.ones(1, 2, dtype=torch.int64)})
    assert model.training
    assert not outputs.logits.requires_grad
    assert cache.get_seq_length() == 2
    assert run_quietly(nn.Identity(), {"input": torch.ones(1)}) == (torch.ones(1), None)
    with pytest.raises(UsageError, match="LlamaForCausalLM does not run on input_ids: "):
        run_quietly(model, {"input_ids": torch.full((1, 1), 99)})
