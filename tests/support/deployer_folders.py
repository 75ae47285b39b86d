"""Small models in Hugging Face folders with a tokenizer of their own."""

import pytest
import torch

from torchferry.zoo.catalogue import build

SENTENCES = """The capital of France is Paris . Once upon a time there was a miller who had three
sons One two , water moves around the planet in cycle and people who sleep badly find it hard to
learn new things lighthouse keeper has one duty that matters more than any other lamp must burn
from dusk until dawn"""
SPECIAL = {"pad": "<pad>", "bos": "<s>", "eos": "</s>", "unk": "<unk>"}


def save_tokenizer(folder, vocabulary):
    """A tokenizer of whole words, as transformers writes it."""
    transformers = pytest.importorskip("transformers")
    import tokenizers
    from tokenizers import models, pre_tokenizers

    words = [*SPECIAL.values(), *dict.fromkeys(SENTENCES.split())][:vocabulary]
    places = {word: place for place, word in enumerate(words)}
    model = models.WordLevel(places, unk_token=SPECIAL["unk"])
    tokenizer = tokenizers.Tokenizer(model)
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    fast = transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, **{f"{name}_token": word for name, word in SPECIAL.items()}
    )
    fast.save_pretrained(folder)


def save_whisper(folder):
    """A small Whisper that hears as many frames as a real one and knows two languages."""
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    heads = {f"{part}_attention_heads": 4 for part in ("encoder", "decoder")}
    layers = {f"{part}_layers": 2 for part in ("encoder", "decoder")}
    config = transformers.WhisperConfig(
        vocab_size=99, num_mel_bins=8, d_model=32, encoder_ffn_dim=48, decoder_ffn_dim=48,
        max_target_positions=64, pad_token_id=0, bos_token_id=1, eos_token_id=2, init_std=0.3,
        decoder_start_token_id=3, suppress_tokens=None, begin_suppress_tokens=None,
        **heads, **layers,
    )  # fmt: skip
    model = transformers.WhisperForConditionalGeneration(config).eval()
    languages = {
        "is_multilingual": True, "lang_to_id": {"<|en|>": 5, "<|de|>": 6},
        "task_to_id": {"transcribe": 7, "translate": 8}, "no_timestamps_token_id": 9,
        "suppress_tokens": [11, 12], "begin_suppress_tokens": [13],
    }  # fmt: skip
    for name, value in languages.items():
        setattr(model.generation_config, name, value)
    model.save_pretrained(folder)
    save_tokenizer(folder, 99)
    return folder


def save_wide_llama(folder):
    """A llama whose heads are as wide as onnxruntime's GroupQueryAttention wants them."""
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        vocab_size=99, hidden_size=64, intermediate_size=96, num_hidden_layers=2, pad_token_id=0,
        num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=64,
        initializer_range=0.3, bos_token_id=1, eos_token_id=2, tie_word_embeddings=True,
    )  # fmt: skip
    transformers.LlamaForCausalLM(config).eval().save_pretrained(folder)
    save_tokenizer(folder, 99)
    return folder


def save_family(name, folder, vocabulary=0):
    """A model of the zoo as a folder of Hugging Face, with a tokenizer."""
    model = build(name).model
    model.save_pretrained(folder)
    save_tokenizer(folder, vocabulary or model.config.get_text_config().vocab_size)
    return folder


def save_image_words(folder):
    """A small Qwen2.5-VL whose tokenizer has a token for each byte and those around images."""
    transformers = pytest.importorskip("transformers")
    import tokenizers
    from tokenizers import decoders, models, pre_tokenizers

    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = tokenizers.Tokenizer(models.BPE({x: i for i, x in enumerate(letters)}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    marks = ("endoftext", "vision_start", "vision_end", "image_pad", "video_pad")
    tokenizer.add_special_tokens([f"<|{mark}|>" for mark in marks])
    end, start, stop, image, video = (tokenizer.token_to_id(f"<|{mark}|>") for mark in marks)
    config = build("qwen2_5_vl").model.config
    config.text_config.vocab_size, config.text_config.max_position_embeddings = 261, 512
    for name, value in {
        "vision_start_token_id": start, "vision_end_token_id": stop, "image_token_id": image,
        "video_token_id": video,
    }.items():  # fmt: skip
        setattr(config, name, value)
    torch.manual_seed(0)
    model = transformers.Qwen2_5_VLForConditionalGeneration(config).eval()
    for parameter in model.parameters():
        parameter.data *= 4 if parameter.ndim > 1 else 1
    model.generation_config = transformers.GenerationConfig(eos_token_id=end, pad_token_id=end)
    model.save_pretrained(folder)
    marked = {f"{name}_token": "<|endoftext|>" for name in ("eos", "pad")}
    fast = transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, **marked)
    fast.save_pretrained(folder)
    return folder
