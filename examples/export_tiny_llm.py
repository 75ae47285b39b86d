"""
What generate() gives to forward, exported
==========================================

Find out what ``generate`` gives to a model's ``forward``, and export that ``forward``::

    python examples/export_tiny_llm.py

The model has the architecture of a small Llama and random weights, so nothing is downloaded.
"""

import inspect
import pprint

import torch

import torchferry as tf
from torchferry.values import clone, register_pytrees

data = tf.get_tiny_llm()
model, inputs, dynamic_shapes = data["model"], data["inputs"], data["dynamic_shapes"]

# %%
# Two ways to see the arguments
# -----------------------------
# Hooks of one's own, and `steal_forward`.


def before(_, args, kwargs):
    """Print the arguments."""
    print("<-", tf.string_type((args, kwargs), with_shape=True, with_min_max=True))


def after(_, __, outputs):
    """Print the result."""
    print("->", tf.string_type(outputs, with_shape=True, with_min_max=True))


prompt = torch.tensor([[1, 2866, 14150, 29901, 372, 1153, 1144, 856]])
options = {"do_sample": True, "top_k": 50, "top_p": 0.95, "pad_token_id": 0}
torch.manual_seed(0)
hooks = [
    model.register_forward_pre_hook(before, with_kwargs=True),
    model.register_forward_hook(after),
]
answer = model.generate(prompt, max_length=12, **options)
for hook in hooks:
    hook.remove()
print("-- prompt", tf.string_type(prompt, with_shape=True))
print("-- answer", tf.string_type(answer, with_shape=True))

# %%

with tf.steal_forward(model):
    model.generate(prompt, max_length=10, **options)

# %%
# One call in the middle
# ----------------------
# The cache grows in place, hence the copy. It has another name since transformers 5.24.


def fitting(named):
    """The same with the cache under the name the model has for it."""
    is_old = "past_key_values" in inspect.signature(model.forward).parameters
    new = {} if is_old else {"past_key_values": "cache"}
    return {new.get(name, name): value for name, value in named.items()}


given = fitting(clone(inputs))
print("input type before", tf.string_type(inputs, with_shape=True))
outputs = model(**given)
print("input type after-", tf.string_type(given, with_shape=True))
print("result type", tf.string_type(outputs, with_shape=True))

# %%

print(tf.string_type(inputs, with_shape=True))
pprint.pprint(dynamic_shapes)

# %%
# torch.export
# ------------
# With dimensions that are named by hand.

register_pytrees()  # lets torch.export see the tensors inside a cache
program = torch.export.export(
    model,
    (),
    kwargs=fitting(clone(inputs)),
    dynamic_shapes=tf.use_dyn_not_str(fitting(dynamic_shapes)),
    strict=False,
)
print("It worked:")
for node in program.graph.find_nodes(op="placeholder"):
    if node.name in program.graph_signature.user_inputs:
        print(f"  {node.name}: {list(node.meta['val'].shape)}")

# %%
# To ONNX
# -------
# What differs between two sets of inputs is dynamic, and other sizes are tried.

others = tf.get_tiny_llm(3, 12, 5)["inputs"]
onnx = tf.export(model, [((), fitting(inputs)), ((), fitting(others))], budget=600)
print(onnx.report.verdict)
