"""
Every cache of transformers
===========================

Caches are nested values like tuples: they are copied, compared, dumped, exported and printed.
The functions below make each kind from tensors, for tests and for inputs of your own.
"""

import torch

import torchferry as tf


def pairs(layers=2, batch=1, heads=2, length=3, size=4):
    """Keys and values of each layer."""
    shape = (batch, heads, length, size)
    return [(torch.rand(shape), torch.rand(shape)) for _ in range(layers)]


# %%
# Attention
# ---------

caches = {
    "dynamic": tf.make_dynamic_cache(pairs()),
    "static, for 8 tokens": tf.make_static_cache(pairs(), max_cache_len=8),
    "encoder and decoder": tf.make_encoder_decoder_cache(pairs(), pairs(length=5)),
    "sliding window": tf.make_sliding_window_cache(pairs(), sliding_window=4),
}
for name, cache in caches.items():
    print(f"{name:22} {tf.string_type(cache, with_shape=True)}")

# %%
# Hybrid and state-space models
# -----------------------------

hybrid = tf.make_hybrid_cache(
    pairs(), layer_types=["full_attention", "sliding_attention"], sliding_window=4
)
print(tf.string_type(hybrid, with_shape=True))
states = [(torch.rand(1, 8, 4), torch.rand(1, 8, 16)) for _ in range(2)]
print(tf.string_type(tf.make_mamba_cache(states), with_shape=True))

# %%
# The tensors of any cache
# ------------------------

parts = tf.cache_tensors(caches["dynamic"])
print([tuple(keys.shape) for keys in parts.key_cache], len(parts.conv_states))

# %%
# A model that takes one
# ----------------------


class Attend(torch.nn.Module):
    """The mean of keys and values, and what is new."""

    def forward(self, x, cache):
        layer = cache.layers[0]
        return x + layer.keys.mean(2) + layer.values.mean(2)


def inputs(batch, length):
    """A set of inputs of these sizes."""
    return torch.rand(batch, 2, 4), tf.make_dynamic_cache(pairs(1, batch, 2, length))


program = tf.export(Attend(), [inputs(2, 3), inputs(3, 7)])
print(program.report.verdict)
print([(one.name, one.shape) for one in program.model.graph.inputs])

# %%
# The picture of this page.

tf.plot_legend("caches\nof transformers", "any of them", "#0072b2")

# %%
# Inside the code
# ---------------
# `steal_append` stores a value from anywhere in the user's code while `steal_forward` records;
# elsewhere it does nothing.


class Told(torch.nn.Module):
    """Says what it computed on the way."""

    def forward(self, x):
        y = x * 2
        tf.steal_append("doubled", y)
        return y + 1


import tempfile
from pathlib import Path

folder = Path(tempfile.mkdtemp())
told = Told()
with tf.steal_forward(("told", told), dump_file=folder / "dump.onnx", fprint=None):
    told(torch.ones(2, 3))
for key, value in tf.create_input_tensors_from_onnx_model(folder / "dump.onnx").items():
    print(key, tf.string_type(value, with_shape=True))
