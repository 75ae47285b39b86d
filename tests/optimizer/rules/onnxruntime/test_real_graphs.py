"""Decoders as this package and torch.onnx write them: everything is found, numbers stay."""

from __future__ import annotations

import copy
from collections import Counter

import numpy as np
import onnx_ir as ir
import onnxruntime
import pytest
import torch

import torchferry as tf
from torchferry.graph.runtime import HIDDEN_ROWS
from torchferry.optimizer.plan import plan_of, run_plan
from torchferry.values.flatten import register_pytrees
from versions import cache_in, can

LAYERS = 2
PLAN = [stage for stage in plan_of("default+onnxruntime") if stage.name != "onnxscript"]


def decoder(attention: str, batch: int = 2, new: int = 3, past: int = 5):
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    config = LlamaConfig(
        hidden_size=32, intermediate_size=48, num_hidden_layers=LAYERS, vocab_size=50,
        num_attention_heads=4, num_key_value_heads=2, attn_implementation=attention,
    )  # fmt: skip
    pairs = [(torch.randn(batch, 2, past, 8), torch.randn(batch, 2, past, 8)) for _ in range(2)]
    mask = torch.ones(batch, past + new, dtype=torch.int64)
    mask[0, :2] = 0
    kwargs = {
        "input_ids": torch.randint(0, 50, (batch, new)),
        "attention_mask": mask,
        "position_ids": torch.arange(past, past + new).expand(batch, new).clone(),
        "cache": tf.make_dynamic_cache(pairs),
    }
    shapes = {name: {0: "batch", 1: "new"} for name in ("input_ids", "position_ids")}
    shapes["attention_mask"] = {0: "batch", 1: "past+new"}
    shapes["cache"] = [[{0: "batch", 2: "past"}] * LAYERS] * 2
    return LlamaForCausalLM(config).eval(), kwargs, shapes


def by_us(attention: str) -> ir.Model:
    module, kwargs, shapes = decoder(attention)
    return tf.to_onnx(module, kwargs=kwargs, dynamic_shapes=shapes).model


def by_torch(attention: str) -> ir.Model:
    module, kwargs, shapes = decoder(attention)
    register_pytrees()
    with tf.torch_export_patches(patch_transformers=True):
        shapes = tf.use_dyn_not_str(shapes)
        program = torch.export.export(
            module, (), kwargs=kwargs, dynamic_shapes=shapes, strict=False
        )
        made = torch.onnx.export(program, dynamo=True, optimize=False, verbose=False)
    return made.model


def feeds(model: ir.Model, batch: int, new: int, past: int):
    _, kwargs, _ = decoder("eager", batch, new, past)
    layers = cache_in(kwargs).layers
    caches = iter(
        [layer.keys for layer in layers] + [layer.values for layer in layers]
        if "key" in str(model.graph.inputs[4].name)
        else [tensor for layer in layers for tensor in (layer.keys, layer.values)]
    )
    return {
        str(value.name): (kwargs[value.name] if value.name in kwargs else next(caches)).numpy()
        for value in model.graph.inputs
    }


def run(model: ir.Model, inputs):
    proto = ir.to_proto(model).SerializeToString()
    session = onnxruntime.InferenceSession(proto, providers=["CPUExecutionProvider"])
    return session.run(None, inputs)


@pytest.mark.sample(1)
@pytest.mark.parametrize("attention", ["eager", "sdpa"])
@pytest.mark.parametrize("write", [by_us, pytest.param(by_torch, marks=pytest.mark.slow)])
def test_everything_is_found_in_a_decoder(write, attention):
    before = write(attention)
    after = copy.deepcopy(ir.to_proto(before))
    after = ir.from_proto(after)
    run_plan(after, PLAN)
    counts = Counter(node.op_type for node in after.graph)
    assert counts["Attention"] == LAYERS
    assert counts["RotaryEmbedding"] == 2 * LAYERS
    assert counts["RMSNormalization"] == 2 * LAYERS + 1
    assert counts["QuickGelu"] == LAYERS
    assert not counts["Softmax"]
    assert len(list(after.graph)) < 0.6 * len(list(before.graph))
    for sizes in ((2, 3, 5), (1, 1, 7), (3, 4, 1), (2, 3, 0)):
        inputs = feeds(before, *sizes)
        for want, got in zip(run(before, inputs), run(after, inputs), strict=True):
            np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)


def test_nothing_is_left_of_what_guards_rows_without_keys() -> None:
    """The kernel makes zeros of them itself."""
    from transformers import ViTConfig, ViTModel

    torch.manual_seed(0)
    config = ViTConfig(
        hidden_size=32, intermediate_size=48, num_hidden_layers=LAYERS, num_attention_heads=4,
        image_size=16, patch_size=8, attn_implementation="sdpa",
    )  # fmt: skip
    images = torch.randn(2, 3, 16, 16)
    module = ViTModel(config).eval()
    model = tf.to_onnx(module, (images,), dynamic_shapes=({0: "batch"},)).model
    run_plan(model, PLAN)
    counts = Counter(node.op_type for node in model.graph)
    assert counts["Attention"] == LAYERS
    if can(HIDDEN_ROWS):
        assert not counts["ReduceMax"]
        assert counts["Transpose"] == 1  # of the patches
    images = torch.randn(1, 3, 16, 16)
    want = module(images)[0].detach().numpy()
    np.testing.assert_allclose(
        run(model, {"pixel_values": images.numpy()})[0], want, rtol=1e-4, atol=1e-4
    )
