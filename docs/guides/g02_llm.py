"""
An LLM with its cache, and generating with it
=============================================

A decoder is called in two ways: once for the prompt, with an empty cache, and then token by
token, with a cache that grows. One ONNX graph serves both if the past length is a dynamic
dimension that may be 0. This page exports a small Llama-like decoder and generates with the ONNX
file.
"""

# %%
# See what generate() passes
# --------------------------
# The arguments of ``forward`` come from ``generate()``. `steal_forward` prints every call; the
# shapes tell what is dynamic. The model has random weights here; a folder of Hugging Face works
# alike.

import torch

import torchferry as tf

data = tf.get_tiny_llm()
model = data["model"].eval()
prompt = torch.tensor([[1, 2866, 14150, 29901]])
options = {"do_sample": False, "pad_token_id": 0}
with tf.steal_forward(model):
    expected = model.generate(prompt, max_new_tokens=3, **options)

# %%
# Observe it
# ----------
# Two runs with different batch and length show the independent sizes. The cache's length and the
# mask's are one size: ``past_sequence_length``, and the sum of it and ``sequence_length``.

with tf.observe(model, limit=8) as seen, torch.no_grad():
    model.generate(prompt, max_new_tokens=3, **options)
    many = torch.randint(1, 1000, (2, 6))
    model.generate(many, max_new_tokens=3, **options)
seen.dynamic_names

# %%
# Calls of a generation have one new token each time, so ``sequence_length`` varies only between
# prompts; and the first call has no cache. Sets made on purpose say more: here with a past and
# several new tokens.

first = data["inputs"]
second = tf.get_tiny_llm(3, 12, 5)["inputs"]
names = {"past_key_values": "cache"} if "cache" in seen.signature.parameters else {}


def fitting(inputs):
    """The inputs by the names that this version of transformers uses."""
    return {names.get(name, name): value for name, value in inputs.items()}


# A loaded machine may need more than the 60 seconds that other sizes have by default.
sets = [((), fitting(first)), ((), fitting(second))]
program = tf.export(model, sets, budget=600)
program.report

# %%
# The empty cache is among the sizes that were tried: look for 0 beside ``past_sequence_length``.
# The inputs and outputs have the names that optimum and onnxruntime-genai expect.

print([value.name for value in program.model.graph.inputs])
print([value.name for value in program.model.graph.outputs])

# %%
# Generate with the ONNX model
# ----------------------------
# The program takes the cache as transformers makes it and returns a new one, so that a loop of a
# few lines generates. Greedy search must give the tokens that PyTorch gave above.

config = model.config
head = config.hidden_size // config.num_attention_heads
shape = (1, config.num_key_value_heads, 0, head)
empty = [(torch.zeros(shape), torch.zeros(shape)) for _ in range(config.num_hidden_layers)]
cache = tf.make_dynamic_cache(empty)
tokens, step = prompt, prompt
for _ in range(3):
    past = tokens.shape[1] - step.shape[1]
    inputs = {
        "input_ids": step,
        "attention_mask": torch.ones(1, tokens.shape[1], dtype=torch.int64),
        "position_ids": torch.arange(past, tokens.shape[1])[None],
        "past_key_values": cache,
    }
    outputs = program(**fitting(inputs))
    cache = getattr(outputs, "past_key_values", None) or outputs.cache
    step = outputs.logits[:, -1:].argmax(-1)
    tokens = torch.cat([tokens, step], 1)
print(tokens, torch.equal(tokens, expected))
assert torch.equal(tokens, expected)

# %%
# Going on
# --------
# * From the command line: ``torchferry export FOLDER -o out --target onnxruntime`` fuses attention
#   into onnxruntime's kernel. That kernel takes no empty batch, which the report then says.
# * A checkpoint that is larger than memory: :doc:`/auto_guides/g09_memory`.
# * Faster: :doc:`/auto_guides/g08_make_it_fast`.
