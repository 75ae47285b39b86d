import inspect

import pytest
import torch
from transformers import MistralConfig, MistralForCausalLM

from torchferry.capturer.patches.sliding_window import (
    PATCHES,
    count_by_mask,
    sliding_layers,
    window_length,
)
from torchferry.capturer.patching.patch import fingerprint
from torchferry.capturer.trial.agreement import run_program
from torchferry.values import make_dynamic_cache, make_sliding_window_cache
from torchferry.values.clone import clone

WINDOW = 6
# forward's own name for it, which changed in transformers 5.24.
CACHE = (
    "cache"
    if "cache" in inspect.signature(MistralForCausalLM.forward).parameters
    else ("past_key_values")
)


@pytest.fixture(scope="module")
def model() -> MistralForCausalLM:
    torch.manual_seed(0)
    return MistralForCausalLM(
        MistralConfig(vocab_size=64, hidden_size=32, intermediate_size=48, num_hidden_layers=2,
                      num_attention_heads=4, num_key_value_heads=2, sliding_window=WINDOW)
    ).eval()  # fmt: skip


def decode(batch: int, past: int, length: int) -> dict[str, object]:
    torch.manual_seed(past)
    pairs = [(torch.randn(batch, 2, past, 8), torch.randn(batch, 2, past, 8)) for _ in range(2)]
    mask = torch.ones(batch, past + length, dtype=torch.int64)
    mask[0, : past // 2] = 0  # left padding, within the window and before it
    return {
        "input_ids": torch.randint(0, 64, (batch, length)),
        "attention_mask": mask,
        "position_ids": torch.arange(past, past + length).expand(batch, -1).clone(),
        CACHE: make_sliding_window_cache(pairs, WINDOW),
    }


def test_windows_not_yet_full_just_full_and_long_full(model, captured):
    sizes = ((2, 3, 4), (3, 12, 3), (2, 5, 2), (1, 6, 3), (2, 40, 2))
    found = captured(model, [decode(*size) for size in sizes])
    assert found.patches == (PATCHES[0].subject,)
    assert [one.error for one in found.attempts] == [None]
    # Other numbers of tokens than any that was seen; the cache does not outgrow its window.
    for size in ((2, 4, 3), (3, 23, 4), (2, 99, 2)):
        inputs = decode(*size)
        got = run_program(found.program, (), clone(inputs))
        want = model(**clone(inputs))
        torch.testing.assert_close(got.logits, want.logits, atol=1e-5, rtol=1e-4)
        kept = got[CACHE].layers[0].keys
        torch.testing.assert_close(kept, want[CACHE].layers[0].keys, atol=1e-5, rtol=1e-4)
        assert kept.shape[2] <= WINDOW - 1


@pytest.mark.slow
def test_a_full_window_alone_is_right_for_other_numbers_of_tokens(model, captured):
    found = captured(model, [decode(2, 12, 4), decode(3, 21, 2)])
    inputs = decode(2, 33, 3)
    got = run_program(found.program, (), clone(inputs))
    torch.testing.assert_close(got.logits, model(**inputs).logits, atol=1e-5, rtol=1e-4)


@pytest.mark.slow
def test_positions_follow_from_the_mask(model, captured):
    sets = [decode(2, 3, 4), decode(3, 12, 3)]
    for one in sets:
        del one["position_ids"]
    captured(model, sets)


def test_who_counts_by_the_mask():
    inputs = decode(2, 12, 3)
    (layer, _) = sliding_layers(inputs)
    layer.cumulative_length = 5
    assert count_by_mask(inputs)
    assert layer.cumulative_length == 12
    assert not count_by_mask({**inputs, "attention_mask": None})
    assert not count_by_mask({**inputs, "attention_mask": torch.ones(2, 1, 3, 15)})
    plain = make_dynamic_cache([(torch.randn(2, 2, 3, 8),) * 2])
    assert not count_by_mask({**inputs, CACHE: plain})
    assert sliding_layers({}) == []


def test_what_a_window_holds_in_a_run():
    for past, length in ((3, 4), (WINDOW - 1, 1), (12, 3)):
        inputs = decode(2, past, length)
        assert window_length(inputs) is None
        longer = {**inputs, "attention_mask": torch.ones(2, 40, dtype=torch.int64)}
        full = None if past >= WINDOW - 1 else WINDOW - 1
        assert window_length(longer) == full
        shorter = {**inputs, "attention_mask": torch.ones(2, length + 1, dtype=torch.int64)}
        assert window_length(shorter) == 1
        assert window_length({**inputs, "attention_mask": torch.ones(2, length - 1)}) == 0
        assert window_length({**inputs, "attention_mask": None}) is None
    plain = make_dynamic_cache([(torch.randn(2, 2, 3, 8),) * 2])
    assert window_length({**decode(2, 9, 3), CACHE: plain}) is None


def test_upstream_is_what_the_patch_was_written_for():
    (patch,) = PATCHES
    assert fingerprint(patch.upstream()) in patch.fingerprints
