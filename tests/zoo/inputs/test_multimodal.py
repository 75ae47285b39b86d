from __future__ import annotations

from typing import Any

import pytest
import torch

from versions import cache_in

ANSWERS = ["llava", "qwen2_5_vl", "qwen2_vl"]


@pytest.mark.parametrize("name", ["clip", "siglip"])
def test_a_caption_ends_where_its_mask_does(name: str, built: Any) -> None:
    entry = built(name)
    end = entry.model.config.text_config.eos_token_id
    for inputs in entry.input_sets:
        lengths = inputs["attention_mask"].sum(1)
        rows = torch.arange(len(lengths))
        assert (inputs["input_ids"][rows, lengths - 1] == end).all()
        assert inputs["pixel_values"].shape[0] != inputs["input_ids"].shape[0] or len(rows) == 1


@pytest.mark.parametrize("name", ANSWERS)
def test_a_step_follows_its_prompt(name: str, built: Any) -> None:
    prompts = built(f"{name}/prefill").input_sets
    for prompt, step in zip(prompts, built(f"{name}/decode").input_sets, strict=True):
        total = prompt["input_ids"].shape[1] + step["input_ids"].shape[1]
        assert step["attention_mask"].shape[1] == total
        assert cache_in(step).get_seq_length() == prompt["input_ids"].shape[1]
        last = prompt["position_ids"].amax(-1)
        assert (step["position_ids"][..., 0] > last.amax()).any()
        assert "pixel_values" not in step


@pytest.mark.parametrize("name", ["qwen2_5_vl", "qwen2_vl"])
def test_positions_are_those_the_model_would_find(name: str, built: Any) -> None:
    entry = built(f"{name}/prefill")
    inputs = entry.input_sets[0]
    kinds = (inputs["input_ids"] == 90).long()
    given = {k: v for k, v in inputs.items() if k != "position_ids"}
    with torch.no_grad():
        found = entry.model(**given, mm_token_type_ids=kinds).logits
        entry.model.model.rope_deltas = None
        assert torch.allclose(entry.model(**inputs).logits, found, atol=1e-5)
