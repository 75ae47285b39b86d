"""A deployed vision-language model generates as transformers does, of images and of text."""

import pytest
import torch

import torchferry as tf
from torchferry.deployer.prove.corpus import pictures
from torchferry.errors import UsageError


@pytest.mark.slow
def test_generate_is_transformers_own_with_images_and_without(deployed_llava):
    transformers = pytest.importorskip("transformers")
    folder, out, _ = deployed_llava
    ours = tf.load(out)
    theirs = transformers.AutoModelForImageTextToText.from_pretrained(folder).eval()
    alone, three = pictures(theirs)
    text = {"input_ids": torch.tensor([[5, 6, 7, 8]])}
    for inputs in (alone.arguments, three.arguments, text):
        for options in ({}, {"num_beams": 3}):
            asked = {**inputs, "do_sample": False, "max_new_tokens": 6, "min_new_tokens": 6,
                     "pad_token_id": 0, **options}  # fmt: skip
            assert ours.generate(**asked).tolist() == theirs.generate(**asked).tolist()
    with torch.no_grad():
        wanted = theirs(**three.arguments).logits
    logits = ours(**three.arguments).logits
    assert tf.max_diff(wanted, logits).abs < 1e-4
    other = {**three.arguments, "pixel_values": three.images["pixel_values"].flip(0)}
    assert tf.max_diff(ours(**other).logits, logits).abs > 0.01  # the images are looked at
    with pytest.raises(
        UsageError, match="input_ids holds 27 tokens of images, and the images give 18"
    ):
        ours(**{**three.arguments, "pixel_values": three.images["pixel_values"][:2]})
