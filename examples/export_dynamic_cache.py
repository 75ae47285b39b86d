"""
Dynamic shapes from valid inputs, caches too
============================================

Find the dynamic shapes that torch.export asks for, from inputs the model takes::

    python examples/export_dynamic_cache.py

Positional arguments, named ones, both, and a key-value cache of Hugging Face's transformers.
"""

import pprint

import torch

import torchferry as tf


class Add(torch.nn.Module):
    """Two tensors, one of them broadcast."""

    def forward(self, x, y):
        return x + y


x, y = torch.randn(5, 6), torch.randn(1, 6)
x2, y2 = torch.randn(7, 8), torch.randn(1, 8)
model = Add()

# %%
# Nothing is dynamic unless one says so
# -------------------------------------

print("--- nothing is dynamic unless one says so")
print(torch.export.export(model, (x, y)))

# %%
# Positional arguments
# --------------------
# What differs between two valid inputs is dynamic.

print("--- args: what differs between two valid inputs is dynamic")
shapes = tf.ModelInputs(model, [(x, y), (x2, y2)]).guess_dynamic_shapes()
pprint.pprint(shapes)
print(torch.export.export(model, (x, y), dynamic_shapes=shapes[0]))

# %%
# Named arguments
# ---------------

print("--- kwargs")
named = {"x": x, "y": y}
shapes = tf.ModelInputs(model, [named, {"x": x2, "y": y2}]).guess_dynamic_shapes()
pprint.pprint(shapes)
print(torch.export.export(model, (), kwargs=named, dynamic_shapes=shapes[1]))

# %%
# Both
# ----
# ``torch.export`` wants the shapes in one piece, so all become named.

print("--- args and kwargs: torch.export wants the shapes in one piece, so all become named")
both = tf.ModelInputs(model, [((x,), {"y": y}), ((x2,), {"y": y2})])
shapes = both.guess_dynamic_shapes()
pprint.pprint(shapes)
args, kwargs, shapes = both.move_to_kwargs((x,), {"y": y}, shapes)
pprint.pprint(shapes)
print(torch.export.export(model, args, kwargs=kwargs, dynamic_shapes=shapes[1]))

# %%
# A cache
# -------
# It is taken apart: all keys, then all values.


class AddCache(torch.nn.Module):
    """Everything in a cache of two layers, and one tensor more."""

    def forward(self, cache, z):
        first, second = cache.layers
        return z + first.keys + second.keys + first.values + second.values


def make_cache(batch, length, size):
    """Two layers of four heads with random keys and values."""
    shape = (batch, 4, length, size)
    return tf.make_dynamic_cache([(torch.randn(shape), torch.randn(shape)) for _ in range(2)])


print("--- DynamicCache")
model = AddCache()
inputs = (make_cache(2, 3, 7), torch.randn(1, 1, 1, 7))
others = (make_cache(3, 4, 8), torch.randn(1, 1, 1, 8))
print(tf.string_type(inputs[0], with_shape=True))
print(tf.string_type(inputs, with_shape=True))
shapes = tf.ModelInputs(model, [inputs, others]).guess_dynamic_shapes()
pprint.pprint(shapes)
print(torch.export.export(model, inputs, dynamic_shapes=shapes[0], strict=False))
