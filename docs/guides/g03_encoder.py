"""
An encoder behind a tokenizer
=============================

A sentence encoder takes padded batches: batch and length are dynamic, and the mask hides the
padding. The pooling is part of the model, so that one ONNX file goes from token ids to a vector.
"""

# %%
# A tokenizer and a model
# -----------------------
# The model is a BERT with random weights and the tokenizer knows ten words, so that nothing is
# downloaded. With a folder of yours, load both from it.

import torch
import transformers
from tokenizers import Tokenizer, models, pre_tokenizers

import torchferry as tf

words = ["[PAD]", "[UNK]", "a", "ferry", "crosses", "the", "river", "again", "and", "slowly"]
tokenizer = Tokenizer(models.WordLevel({word: n for n, word in enumerate(words)}, "[UNK]"))
tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
tokenizer.enable_padding(pad_id=0, pad_token="[PAD]")


def encode(texts):
    """Token ids and mask of a batch."""
    batch = tokenizer.encode_batch(texts)
    ids = torch.tensor([one.ids for one in batch])
    mask = torch.tensor([one.attention_mask for one in batch])
    return {"input_ids": ids, "attention_mask": mask}


class SentenceEncoder(torch.nn.Module):
    """Mean pooling over what is not padding, then length 1."""

    def __init__(self):
        super().__init__()
        config = transformers.BertConfig(
            vocab_size=len(words),
            hidden_size=32,
            num_hidden_layers=2,
            num_attention_heads=4,
            intermediate_size=64,
            max_position_embeddings=64,
        )
        self.bert = transformers.BertModel(config, add_pooling_layer=False)

    def forward(self, input_ids, attention_mask):
        hidden = self.bert(input_ids, attention_mask=attention_mask).last_hidden_state
        weight = attention_mask.unsqueeze(-1).to(hidden.dtype)
        mean = (hidden * weight).sum(1) / weight.sum(1).clamp(min=1e-9)
        return torch.nn.functional.normalize(mean)


torch.manual_seed(0)
model = SentenceEncoder().eval()

# %%
# Export
# ------
# The inputs are what the tokenizer gives for real texts, so that some rows are padded: a mask of
# ones would not show whether the mask is used.

with tf.observe(model) as seen, torch.no_grad():
    model(**encode(["a ferry crosses", "the river"]))
    model(**encode(["a ferry crosses the river again", "slowly", "and again"]))
program = tf.export(model, seen, target="onnxruntime", budget=600)
program.report

# %%
# Padding must not change a result
# --------------------------------
# A test worth having: the vector of a text is the same alone and in a padded batch.

texts = ["the river", "a ferry crosses the river again and again"]
alone = program(**encode(texts[:1]))
batch = program(**encode(texts))
print(tf.string_diff(tf.max_diff(alone, batch[:1])))
assert torch.allclose(alone, batch[:1], atol=1e-5)

# %%
# What the target did
# -------------------
# ``target="onnxruntime"`` fuses attention, GELU and normalization into operators of onnxruntime.

from collections import Counter

Counter(node.op_type for node in program.model.graph).most_common(8)

# %%
# A folder of sentence-transformers needs none of this: ``torchferry export FOLDER -o out`` reads
# its pooling and normalization (``torchferry inspect sources``).
