"""Small models in Hugging Face folders with a tokenizer of their own."""

import pytest

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


def save_family(name, folder):
    """A model of the zoo as a folder of Hugging Face, with a tokenizer."""
    model = build(name).model
    model.save_pretrained(folder)
    save_tokenizer(folder, model.config.vocab_size)
    return folder
