"""The models that runtime.py measures, with their inputs and dynamic dimensions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import torch

__all__ = ["CASES", "Case"]

Build = Callable[[], "Case"]


@dataclass
class Case:
    """A model and one call of it.

    Attributes:
        module: in evaluation mode; gives a tensor or a tuple of them.
        kwargs: the call, tensors or lists of them.
        shapes: the dynamic dimensions, nested as the call.
        kind: what ``onnxruntime.transformers`` calls the architecture, or "".
        heads: of attention, 0 if there is none.
        hidden: hidden size.
        bar: the least speed-up over eager that is asked for.
        weights: what they are quantized to before onnxruntime runs them, or "".
        tolerance: of the largest value, beyond which the numbers are others than eager's.
    """

    module: torch.nn.Module
    kwargs: dict[str, Any]
    shapes: dict[str, Any]
    kind: str = ""
    heads: int = 0
    hidden: int = 0
    bar: float = 1.0
    weights: str = ""
    tolerance: float = 1e-3
    inputs: dict[str, torch.Tensor] = field(init=False)

    def __post_init__(self) -> None:
        self.module.eval()
        self.inputs = {}
        for name, value in self.kwargs.items():
            if isinstance(value, torch.Tensor):
                self.inputs[name] = value
            else:
                self.inputs |= {f"{name}.{i}": tensor for i, tensor in enumerate(value)}

    def feeds(self, names: list[str]) -> dict[str, Any]:
        """The call as a session takes it; exporters keep the order, not the names."""
        return {
            name: value.numpy()
            for name, value in zip(names, self.inputs.values(), strict=True)
        }  # fmt: skip


class Prefill(torch.nn.Module):
    """The hidden states of a prompt."""

    def __init__(self, model: torch.nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> Any:
        return self.model(input_ids, attention_mask=attention_mask, use_cache=False)[0]


class Decode(torch.nn.Module):
    """One token after a past; the past comes as tensors, so that every call is the same."""

    def __init__(self, model: torch.nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(
        self, input_ids: torch.Tensor, attention_mask: torch.Tensor, past: list[torch.Tensor]
    ) -> Any:
        from transformers import DynamicCache

        cache = DynamicCache()
        for layer in range(len(past) // 2):
            cache.update(past[2 * layer], past[2 * layer + 1], layer)
        hidden = self.model(
            input_ids, attention_mask=attention_mask, past_key_values=cache, use_cache=True
        )[0]
        return hidden, *(t for layer in cache.layers for t in (layer.keys, layer.values))


class First(torch.nn.Module):
    """The first output of a model."""

    def __init__(self, model: torch.nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, **kwargs: torch.Tensor) -> Any:
        return self.model(**kwargs)[0]


class Image(First):
    """The first output of a model of images."""

    def forward(self, pixel_values: torch.Tensor) -> Any:
        return self.model(pixel_values)[0]


class Text(First):
    """The first output of a model of texts."""

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> Any:
        return self.model(input_ids, attention_mask=attention_mask)[0]


def llama(hidden: int, layers: int, heads: int, kv: int, attention: str) -> Any:
    from transformers import LlamaConfig, LlamaModel

    config = LlamaConfig(
        vocab_size=1000, hidden_size=hidden, intermediate_size=2 * hidden,
        num_hidden_layers=layers, num_attention_heads=heads, num_key_value_heads=kv,
        attn_implementation=attention,
    )  # fmt: skip
    return LlamaModel(config)


def prefill(layers: int, kv: int, attention: str) -> Build:
    def build() -> Case:
        module = Prefill(llama(1024, layers, 16, kv, attention))
        ids = torch.randint(0, 1000, (2, 256))
        kwargs = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
        shapes = {name: {0: "batch", 1: "sequence"} for name in kwargs}
        return Case(module, kwargs, shapes, "qwen3", 16, 1024, bar=1.7)

    return build


def decode(hidden: int, past: int, heads: int, kv: int, bar: float) -> Build:
    def build() -> Case:
        layers = 2
        shape = (1, kv, past, hidden // heads)
        kwargs = {
            "input_ids": torch.tensor([[5]]),
            "attention_mask": torch.ones(1, past + 1, dtype=torch.int64),
            "past": [torch.randn(shape) for _ in range(2 * layers)],
        }
        shapes = {
            "input_ids": {0: "batch"},
            "attention_mask": {0: "batch", 1: "past+1"},
            "past": [{0: "batch", 2: "past"}] * (2 * layers),
        }
        module = Decode(llama(hidden, layers, heads, kv, "sdpa"))
        return Case(module, kwargs, shapes, "qwen3", heads, hidden, bar)

    return build


def bert() -> Case:
    from transformers import BertConfig, BertModel

    config = BertConfig(
        hidden_size=256, num_hidden_layers=4, num_attention_heads=4, intermediate_size=1024,
        vocab_size=1000,
    )  # fmt: skip
    ids = torch.randint(0, 1000, (2, 64))
    kwargs = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
    shapes = {name: {0: "batch", 1: "sequence"} for name in kwargs}
    module = Text(BertModel(config, add_pooling_layer=False))
    return Case(module, kwargs, shapes, "bert", 4, 256, bar=2.5)


def vit() -> Case:
    from transformers import ViTConfig, ViTModel

    config = ViTConfig(
        hidden_size=256, num_hidden_layers=4, num_attention_heads=4, intermediate_size=1024,
        image_size=96, patch_size=16,
    )  # fmt: skip
    kwargs = {"pixel_values": torch.randn(2, 3, 96, 96)}
    module = Image(ViTModel(config, add_pooling_layer=False))
    return Case(module, kwargs, {"pixel_values": {0: "batch"}}, "vit", 4, 256)


def resnet() -> Case:
    from transformers import ResNetConfig, ResNetForImageClassification

    config = ResNetConfig(
        depths=[2, 2, 2, 2], hidden_sizes=[64, 128, 256, 512], layer_type="basic"
    )
    module = Image(ResNetForImageClassification(config))
    for norm in module.modules():
        if isinstance(norm, torch.nn.BatchNorm2d):  # as after some training
            assert norm.running_mean is not None
            assert norm.running_var is not None
            norm.running_mean.normal_(std=0.1)
            norm.running_var.uniform_(0.8, 1.2)
    kwargs = {"pixel_values": torch.randn(1, 3, 224, 224)}
    return Case(module, kwargs, {"pixel_values": {0: "batch"}}, bar=3.0)


def half(build: Build) -> Build:
    """The same in float16."""

    def made() -> Case:
        case = build()
        case.module.half()
        kwargs = {
            name: [tensor.half() for tensor in value] if isinstance(value, list) else value
            for name, value in case.kwargs.items()
        }
        return replace(case, kwargs=kwargs, bar=1.0, tolerance=2e-2)

    return made


def light(build: Build, weights: str) -> Build:
    """The same with quantized weights."""
    tolerance = 0.3 if weights == "int4" else 0.15
    return lambda: replace(build(), bar=1.0, weights=weights, tolerance=tolerance)


_PREFILL, _DECODE = prefill(1, 4, "sdpa"), decode(1024, 256, 16, 4, 1.0)

CASES: Mapping[str, Build] = {
    **{
        f"prefill, {layers} layer{'s' * (layers > 1)}, kv {kv}, {attention}": prefill(
            layers, kv, attention
        )
        for layers in (1, 2)
        for kv in (4, 16)
        for attention in ("eager", "sdpa")
    },
    "small decode": decode(256, 64, 8, 4, 5.5),
    "large decode": _DECODE,
    "BERT, 4 layers": bert,
    "ViT, 4 layers": vit,
    "ResNet18": resnet,
    "prefill, 1 layer, kv 4, sdpa, float16": half(_PREFILL),
    "large decode, float16": half(_DECODE),
    **{
        f"{name}, {weights}": light(build, weights)
        for name, build in (("prefill, 1 layer, kv 4, sdpa", _PREFILL), ("large decode", _DECODE))
        for weights in ("int8", "int8 QDQ", "int4")
    },
}
