from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
import transformers
from torch import nn

from torchferry.errors import UsageError
from torchferry.values import cache_pairs
from torchferry.zoo.inputs.text import cache_name
from torchferry.zoo.tasks import decoder_inputs, encoder_inputs, image_inputs, input_sets
from torchferry.zoo.weights import seeded

SIZES: dict[str, Any] = {
    "vocab_size": 100,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
}
SPECIAL: dict[str, Any] = {"bos_token_id": 1, "eos_token_id": 2}


def llama(**changes: Any) -> nn.Module:
    config = transformers.LlamaConfig(**{**SIZES, "num_key_value_heads": 2, **changes})
    return transformers.LlamaForCausalLM(config).eval()


def gpt2() -> nn.Module:
    config = transformers.GPT2Config(vocab_size=100, n_embd=32, n_layer=2, n_head=4, **SPECIAL)
    return transformers.GPT2LMHeadModel(config).eval()


def mistral() -> nn.Module:
    config = transformers.MistralConfig(**SIZES, num_key_value_heads=2, sliding_window=8)
    return transformers.MistralForCausalLM(config).eval()


def run(model: nn.Module, inputs: dict[str, Any]) -> Any:
    inputs = copy.deepcopy(inputs)
    if "past_key_values" in inputs:
        inputs[cache_name(model)] = inputs.pop("past_key_values")
    with torch.no_grad():
        return model(**inputs)


@pytest.mark.parametrize("make", [llama, gpt2, mistral])
def test_a_decoder_gets_a_cache_of_its_own_making(make: Any) -> None:
    model = make()
    sets = input_sets(model)
    assert len(sets) == 3
    assert len({tuple(s["input_ids"].shape) for s in sets}) == 3
    for inputs in sets:
        assert list(inputs) == ["input_ids", "attention_mask", "position_ids", "past_key_values"]
        assert len(cache_pairs(inputs["past_key_values"])) == 2
        assert torch.isfinite(run(model, inputs).logits).all()


def test_the_cached_step_continues_what_one_long_run_computes() -> None:
    model, seen = llama(), []
    hook = model.register_forward_pre_hook(
        lambda _, args, kwargs: seen.append(kwargs["input_ids"]), with_kwargs=True
    )
    inputs = decoder_inputs(
        model, batch=2, sequence=3, past=7, generator=seeded(0), padding=(0, 4)
    )
    hook.remove()
    tokens = torch.cat([seen[0], inputs["input_ids"]], 1)
    mask = inputs["attention_mask"]
    positions = (mask.cumsum(-1) - 1).clamp(min=0)
    whole = run(model, {"input_ids": tokens, "attention_mask": mask, "position_ids": positions})
    step = run(model, inputs)
    assert torch.allclose(step.logits, whole.logits[:, 7:], atol=1e-5)


@pytest.mark.parametrize("heads", [1, 2, 4])
def test_the_cache_has_the_key_value_heads_and_head_size_of_the_model(heads: int) -> None:
    inputs = input_sets(llama(num_key_value_heads=heads, head_dim=12))[0]
    batch, past = inputs["input_ids"].shape[0], inputs["attention_mask"].shape[1]
    past -= inputs["input_ids"].shape[1]
    for key, value in cache_pairs(inputs["past_key_values"]):
        assert key.shape == value.shape == (batch, heads, past, 12)


def test_sizes_of_the_first_set_are_no_sizes_of_the_model() -> None:
    model = llama()
    inputs = input_sets(model)[0]
    total = inputs["attention_mask"].shape[1]
    batch, sequence = inputs["input_ids"].shape
    seen = [batch, sequence, total - sequence, total]
    assert len(set(seen)) == 4
    assert not set(seen) & {100, 32, 48, 2, 4, 8}


def test_a_short_model_gets_inputs_that_fit() -> None:
    model = llama(max_position_embeddings=16)
    for inputs in input_sets(model):
        assert inputs["attention_mask"].shape[1] <= 16
        assert inputs["position_ids"].max() < 16
    with pytest.raises(UsageError, match="too few positions"):
        input_sets(llama(max_position_embeddings=4))


def test_the_mode_of_the_model_stays_and_so_does_the_global_generator() -> None:
    model = llama().train()
    before = torch.get_rng_state()
    input_sets(model)
    assert model.training
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize(
    ("model_class", "config_class", "names"),
    [
        ("BertModel", "BertConfig", ["input_ids", "attention_mask", "token_type_ids"]),
        ("BertForMaskedLM", "BertConfig", ["input_ids", "attention_mask", "token_type_ids"]),
        (
            "RobertaForSequenceClassification",
            "RobertaConfig",
            ["input_ids", "attention_mask", "token_type_ids"],
        ),
        ("DistilBertModel", "DistilBertConfig", ["input_ids", "attention_mask"]),
        (
            "DistilBertForSequenceClassification",
            "DistilBertConfig",
            ["input_ids", "attention_mask"],
        ),
    ],
)
def test_an_encoder_gets_masked_text(
    model_class: str, config_class: str, names: list[str]
) -> None:
    small = {**SIZES, "max_position_embeddings": 34}
    if config_class == "DistilBertConfig":
        small = {"vocab_size": 100, "dim": 32, "n_layers": 1, "n_heads": 4, "hidden_dim": 48}
    config = getattr(transformers, config_class)(**small)
    model = getattr(transformers, model_class)(config).eval()
    sets = input_sets(model)
    assert [list(inputs) for inputs in sets] == [names] * 3
    assert len({tuple(s["input_ids"].shape) for s in sets}) == 3
    padded = sets[1]
    masked = padded["attention_mask"] == 0
    assert masked.any()
    assert ((padded["input_ids"] == config.pad_token_id) == masked).all()
    for inputs in sets:
        run(model, inputs)


def test_two_segments_where_the_model_knows_two() -> None:
    model = transformers.BertModel(transformers.BertConfig(**SIZES))
    inputs = encoder_inputs(model, batch=2, sequence=6, generator=seeded(0))
    assert inputs["token_type_ids"].tolist() == [[0, 0, 0, 1, 1, 1]] * 2
    one = transformers.BertModel(transformers.BertConfig(**SIZES, type_vocab_size=1))
    assert encoder_inputs(one, batch=2, sequence=6, generator=seeded(0))[
        "token_type_ids"
    ].unique().tolist() == [0]


def test_convolutions_get_images_with_unequal_sides() -> None:
    config = transformers.ResNetConfig(embedding_size=8, hidden_sizes=[8, 8], depths=[1, 1])
    sets = input_sets(transformers.ResNetModel(config))
    assert all(s["pixel_values"].shape[2] != s["pixel_values"].shape[3] for s in sets)


def test_a_vision_transformer_gets_images_of_its_size() -> None:
    config = transformers.ViTConfig(
        **{**SIZES, "num_channels": 1, "image_size": (32, 16), "patch_size": 8}
    )
    model = transformers.ViTModel(config).eval()
    shapes = [tuple(s["pixel_values"].shape) for s in input_sets(model)]
    assert shapes == [(2, 1, 32, 16), (5, 1, 32, 16), (1, 1, 32, 16)]
    assert image_inputs(model, 7, 32, 16, generator=seeded(0))["pixel_values"].shape[0] == 7


@pytest.mark.parametrize(
    ("model_class", "config"),
    [
        ("T5Model", {"d_model": 16, "d_kv": 4, "num_heads": 2, "d_ff": 16}),
        ("MambaForCausalLM", {"hidden_size": 16}),
    ],
)
def test_other_models_say_how_to_give_inputs(model_class: str, config: dict[str, Any]) -> None:
    cls = getattr(transformers, model_class)
    model = cls(cls.config_class(**config, vocab_size=100, num_hidden_layers=1, num_layers=1))
    with pytest.raises(UsageError, match=rf"{model_class}: its forward takes") as raised:
        input_sets(model.eval())
    assert "--inputs FILE.py:function" in str(raised.value)


@pytest.mark.parametrize("window", [18, 40, 4096])
def test_a_window_is_not_full_in_one_set_and_empty_in_another(window: int) -> None:
    config = transformers.MistralConfig(**SIZES, num_key_value_heads=2, sliding_window=window)
    sets = input_sets(transformers.MistralForCausalLM(config).eval())
    lengths = [inputs["attention_mask"].shape[1] for inputs in sets]
    assert len({*lengths}) == 3
    assert max(lengths) < window


def test_an_encoder_decoder_takes_a_step_after_its_encoder_has_run() -> None:
    sizes = {"d_model": 16, "d_kv": 4, "num_heads": 2, "d_ff": 16, "num_layers": 1}
    model = transformers.T5ForConditionalGeneration(
        transformers.T5Config(**sizes, vocab_size=100, decoder_start_token_id=0)
    ).eval()
    sets = input_sets(model)
    assert len(sets) == 3
    for inputs in sets:
        assert inputs["encoder_outputs"].last_hidden_state.shape[-1] == 16
        with torch.no_grad():
            shape = model(**inputs).logits.shape
        assert shape == (*inputs["decoder_input_ids"].shape, 100)


def test_a_model_of_raw_sound_hears_as_many_frames_whatever_its_strides() -> None:
    sizes = {"hidden_size": 32, "num_attention_heads": 2, "num_hidden_layers": 1}
    frames = []
    for strides in ((5, 2, 2), (5, 2, 2, 2, 2, 2, 2)):
        kernels, width = [10, 3, 3, 3, 3, 2, 2][: len(strides)], [16] * len(strides)
        config = transformers.Wav2Vec2Config(
            **sizes, conv_stride=strides, conv_kernel=kernels, conv_dim=width
        )
        model = transformers.Wav2Vec2Model(config).eval()
        sets = input_sets(model)
        with torch.no_grad():
            frames.append([model(**fed).last_hidden_state.shape[1] for fed in sets])
    assert max(abs(a - b) for a, b in zip(*frames, strict=True)) <= 2
    assert min(frames[0]) > 10


def test_a_plain_module_says_how_to_give_inputs() -> None:
    with pytest.raises(UsageError, match=r"Linear: its forward takes \(input\)"):
        input_sets(nn.Linear(2, 2))


def test_a_model_that_fails_on_text_says_why() -> None:
    config = transformers.LlamaConfig(**SIZES)
    model = transformers.LlamaForCausalLM(config).eval()
    model.model.layers[0].mlp.up_proj = nn.Linear(5, 5)
    with pytest.raises(UsageError, match="LlamaForCausalLM does not run on input_ids"):
        input_sets(model)
