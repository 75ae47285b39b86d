"""Observing a model, or two sets of inputs, gives dynamic shapes that torch.export takes.

The models are small configurations of real architectures with random weights. Decoders are watched
while they generate, other models get two sets made by hand.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from families import slow_among
from torchferry.observer import Observation, observe
from torchferry.observer.keywords import explicit_keywords
from torchferry.observer.model_inputs import ModelInputs
from torchferry.zoo import build, names

transformers = pytest.importorskip("transformers")

# What transformers says of itself while it generates or is traced.
pytestmark = pytest.mark.filterwarnings("ignore")

VOCABULARY = 99
SMALL: dict[str, Any] = {
    "vocab_size": VOCABULARY, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4,
    "intermediate_size": 37, "max_position_embeddings": 64,
    "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": None,
}  # fmt: skip
GROUPED = {**SMALL, "num_key_value_heads": 2, "head_dim": 8}
GPT2: dict[str, Any] = {
    "vocab_size": VOCABULARY, "n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 64,
    "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": None,
}  # fmt: skip

# name → (model class, configuration class, its entries)
DECODERS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "llama": ("LlamaForCausalLM", "LlamaConfig", GROUPED),
    "mistral": ("MistralForCausalLM", "MistralConfig", {**GROUPED, "sliding_window": None}),
    "qwen2": ("Qwen2ForCausalLM", "Qwen2Config", GROUPED),
    "qwen3": ("Qwen3ForCausalLM", "Qwen3Config", GROUPED),
    "gemma": ("GemmaForCausalLM", "GemmaConfig", GROUPED),
    "phi": ("PhiForCausalLM", "PhiConfig", SMALL),
    "gpt_neox": ("GPTNeoXForCausalLM", "GPTNeoXConfig", SMALL),
    "opt": (
        "OPTForCausalLM",
        "OPTConfig",
        {**SMALL, "ffn_dim": 37, "word_embed_proj_dim": 32},
    ),
    "gpt2": ("GPT2LMHeadModel", "GPT2Config", GPT2),
    "bloom": ("BloomForCausalLM", "BloomConfig", SMALL),
    "falcon": ("FalconForCausalLM", "FalconConfig", SMALL),
}


def tokens(*shape: int) -> torch.Tensor:
    return torch.randint(3, VOCABULARY, shape)


def text(batch: int, length: int) -> dict[str, torch.Tensor]:
    mask = torch.ones(batch, length, dtype=torch.int64)
    mask[0, -2:] = 0
    return {"input_ids": tokens(batch, length), "attention_mask": mask}


def encoder(model: str, config: str, **more: Any) -> Callable[[], tuple[nn.Module, list[Any]]]:
    def make() -> tuple[nn.Module, list[Any]]:
        made = getattr(transformers, model)(getattr(transformers, config)(**{**SMALL, **more}))
        return made, [text(2, 7), text(3, 9)]

    return make


def t5() -> tuple[nn.Module, list[Any]]:
    config = transformers.T5Config(
        vocab_size=VOCABULARY, d_model=32, d_kv=8, d_ff=37, num_layers=2, num_heads=4,
        decoder_start_token_id=0,
    )  # fmt: skip
    sets = [
        {**text(b, e), "decoder_input_ids": tokens(b, d)} for b, e, d in ((2, 7, 5), (3, 9, 4))
    ]
    return transformers.T5ForConditionalGeneration(config), [
        {**one, "use_cache": False} for one in sets
    ]


def bart() -> tuple[nn.Module, list[Any]]:
    config = transformers.BartConfig(
        vocab_size=VOCABULARY, d_model=32, encoder_layers=1, decoder_layers=1,
        encoder_attention_heads=4, decoder_attention_heads=4, encoder_ffn_dim=37,
        decoder_ffn_dim=37, max_position_embeddings=64,
    )  # fmt: skip
    sets = [
        {**text(b, e), "decoder_input_ids": tokens(b, d)} for b, e, d in ((2, 7, 5), (3, 9, 4))
    ]
    return transformers.BartModel(config), [{**one, "use_cache": False} for one in sets]


def vit() -> tuple[nn.Module, list[Any]]:
    config = transformers.ViTConfig(
        hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=37,
        image_size=16, patch_size=4,
    )  # fmt: skip
    return transformers.ViTModel(config), [(torch.rand(n, 3, 16, 16),) for n in (2, 3)]


def resnet() -> tuple[nn.Module, list[Any]]:
    config = transformers.ResNetConfig(
        embedding_size=8, hidden_sizes=[8, 16], depths=[1, 1], layer_type="basic"
    )
    sizes = ((2, 3, 32, 48), (3, 3, 40, 56))
    return transformers.ResNetModel(config), [{"pixel_values": torch.rand(s)} for s in sizes]


def clip_text() -> tuple[nn.Module, list[Any]]:
    config = transformers.CLIPTextConfig(**{**SMALL, "eos_token_id": 2})
    return transformers.CLIPTextModel(config), [text(2, 7), text(3, 9)]


def wav2vec2() -> tuple[nn.Module, list[Any]]:
    config = transformers.Wav2Vec2Config(
        vocab_size=32, hidden_size=16, num_hidden_layers=1, num_attention_heads=2,
        intermediate_size=20, conv_dim=(16, 16), conv_stride=(5, 2), conv_kernel=(10, 3),
        num_feat_extract_layers=2, num_conv_pos_embeddings=16, num_conv_pos_embedding_groups=2,
    )  # fmt: skip
    sizes = ((2, 400), (3, 600))
    return transformers.Wav2Vec2Model(config), [{"input_values": torch.rand(s)} for s in sizes]


def whisper() -> tuple[nn.Module, list[Any]]:
    config = transformers.WhisperConfig(
        vocab_size=VOCABULARY, d_model=16, encoder_layers=1, decoder_layers=1,
        encoder_attention_heads=2, decoder_attention_heads=2, encoder_ffn_dim=20,
        decoder_ffn_dim=20, num_mel_bins=8, max_source_positions=20, max_target_positions=30,
        pad_token_id=0, bos_token_id=1, eos_token_id=2, decoder_start_token_id=1,
    )  # fmt: skip
    sets = [{"input_features": torch.rand(b, 8, 40), "decoder_input_ids": tokens(b, d)}
            for b, d in ((2, 5), (3, 4))]  # fmt: skip
    return transformers.WhisperModel(config), [{**one, "use_cache": False} for one in sets]


BY_HAND: dict[str, Callable[[], tuple[nn.Module, list[Any]]]] = {
    "bert": encoder("BertModel", "BertConfig"),
    "roberta": encoder("RobertaModel", "RobertaConfig"),
    "distilbert": encoder("DistilBertModel", "DistilBertConfig", dim=32, n_layers=2, n_heads=4,
                          hidden_dim=37),
    "electra": encoder("ElectraModel", "ElectraConfig", embedding_size=16),
    "albert": encoder("AlbertModel", "AlbertConfig", embedding_size=16),
    "t5": t5,
    "bart": bart,
    "vit": vit,
    "resnet": resnet,
    "clip text": clip_text,
    "wav2vec2": wav2vec2,
    "whisper": whisper,
}  # fmt: skip

FAST = ("llama", "gpt2", "bert", "t5", "vit")
SLOWLY = pytest.mark.slow


def some_slow(all_names: Any) -> list[Any]:
    return [n if n in FAST else pytest.param(n, marks=SLOWLY) for n in all_names]


def watched_generation(name: str, padding: int = 2) -> tuple[nn.Module, Observation]:
    model_class, config_class, entries = DECODERS[name]
    config = getattr(transformers, config_class)(**entries)
    torch.manual_seed(0)
    model = getattr(transformers, model_class)(config).eval()
    with observe(model) as seen:
        for batch, length in ((2, 7), (3, 5)):
            mask = torch.ones(batch, length, dtype=torch.int64)
            mask[0, :padding] = 0  # with padding, the mask is an argument of every call
            model.generate(
                tokens(batch, length), attention_mask=mask, max_new_tokens=4, do_sample=False
            )
    return model, seen


def symbolic(program: torch.export.ExportedProgram) -> dict[str, set[int]]:
    """For each tensor input, its symbolic axes."""
    wanted = set(program.graph_signature.user_inputs)
    return {
        node.name: {i for i, s in enumerate(node.meta["val"].shape) if isinstance(s, torch.SymInt)}
        for node in program.graph.nodes
        if node.op == "placeholder" and node.name in wanted
        and isinstance(node.meta.get("val"), torch.Tensor)
    }  # fmt: skip


def check(model: nn.Module, given: ModelInputs) -> ModelInputs:
    """Export with what was guessed; every axis that was called dynamic must be so."""
    args, kwargs, shapes = given.export_arguments()
    asked = [set(shape) for shape in leaves(shapes)]
    with torch.no_grad(), explicit_keywords(model, kwargs):
        program = torch.export.export(model, args, kwargs, dynamic_shapes=shapes)
    assert list(symbolic(program).values()) == asked
    return given


def leaves(shapes: Any) -> list[dict[int, Any]]:
    """The axes of each tensor, in order."""
    if isinstance(shapes, dict) and all(isinstance(key, int) for key in shapes):
        return [shapes]
    inner = shapes.values() if isinstance(shapes, dict) else shapes or ()
    return [leaf for shape in inner for leaf in leaves(shape)]


@pytest.mark.parametrize("name", some_slow(DECODERS))
def test_a_generation(name: str) -> None:
    model, seen = watched_generation(name)
    given = check(model, ModelInputs(model, [(c.args, c.kwargs) for c in seen.calls]))
    assert given.observation.dynamic_names == (
        "batch_size", "sequence_length", "past_sequence_length",
    )  # fmt: skip
    mask = next(a for a in given.observation.arguments if a.name == "attention_mask")
    assert [str(axis.size) for axis in mask.axes] == [
        "batch_size", "past_sequence_length + sequence_length",
    ]  # fmt: skip
    (cache,) = given.optional.values()
    assert cache.get_seq_length() == 0
    assert seen.best is not seen.calls[0]  # a filled cache


@pytest.mark.sample(1)
@pytest.mark.parametrize("name", some_slow(BY_HAND))
def test_two_sets_by_hand(name: str) -> None:
    torch.manual_seed(0)
    model, sets = BY_HAND[name]()
    model.eval()
    with torch.no_grad():
        for one in sets:  # they are what the model takes
            model(*one) if isinstance(one, tuple) else model(**one)
    given = check(model, ModelInputs(model, sets))
    assert "batch_size" in given.observation.dynamic_names


@pytest.mark.parametrize("name", slow_among(names(), ["mlp", "tiny-vit"]))
def test_the_zoo(name: str) -> None:
    made = build(name)
    given = check(made.model, ModelInputs(made.model, made.input_sets))
    assert "batch_size" in given.observation.dynamic_names


def test_a_generation_without_padding_has_no_mask() -> None:
    model, seen = watched_generation("llama", padding=0)
    if "attention_mask" in seen.calls[0].kwargs:
        pytest.skip("this transformers makes a mask of ones itself")
    given = check(model, ModelInputs(model, [(c.args, c.kwargs) for c in seen.calls]))
    assert "attention_mask" not in given.guess_dynamic_shapes()[1]


def test_there_are_models_enough() -> None:
    assert len({*DECODERS, *BY_HAND, *names()}) >= 20
