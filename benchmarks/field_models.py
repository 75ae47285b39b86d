"""The models of field.py by family: each a function that returns a model and two sets of inputs.

``field_models.py:timm/resnet18`` is a factory, as ``torchferry export`` takes one; each makes
random weights, and imports its library only when it is called.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from field_images import IMAGES, Factory, Made, images
from field_sound import AUDIO, WAVES, audio, transform
from field_trained import TRAINED
from field_transformers import TRANSFORMERS
from torch import nn

__all__ = ["FACTORIES"]

# diffusers ---------------------------------------------------------------------------------------

_UNET = {"block_out_channels": (16, 32), "layers_per_block": 1, "norm_num_groups": 8}
_TEXT = {"cross_attention_dim": 16, "attention_head_dim": 8}


def diffusers(name: str, size: dict[str, Any], inputs: Callable[[int, int, int], Any]) -> Made:
    model = getattr(importlib.import_module("diffusers"), name)(**size)
    return model, [inputs(2, 16, 24), inputs(3, 24, 16)]


def latent(channels: int, batch: int, height: int, width: int) -> dict[str, Any]:
    return {"sample": torch.randn(batch, channels, height, width)}


def at_time(channels: int, batch: int, height: int, width: int) -> dict[str, Any]:
    times = torch.arange(batch) * 7 + 1
    return {**latent(channels, batch, height, width), "timestep": times}


def with_text(batch: int, height: int, width: int) -> dict[str, Any]:
    text = torch.randn(batch, 3 + batch, 16)
    return {**at_time(4, batch, height, width), "encoder_hidden_states": text}


def with_control(batch: int, height: int, width: int) -> dict[str, Any]:
    picture = torch.rand(batch, 3, height * 2, width * 2)
    return {**with_text(batch, height, width), "controlnet_cond": picture}


def of_classes(batch: int, _height: int, _width: int) -> dict[str, Any]:
    own = at_time(4, batch, 8, 8)
    own["hidden_states"] = own.pop("sample")
    return {**own, "class_labels": torch.arange(batch)}


def patches(batch: int, _height: int, _width: int) -> dict[str, Any]:
    own = with_text(batch, 8, 8)
    own["hidden_states"] = own.pop("sample")
    return own


def joint(batch: int, height: int, width: int) -> dict[str, Any]:
    own = with_text(batch, height, width)
    own["hidden_states"] = own.pop("sample")
    return {**own, "pooled_projections": torch.randn(batch, 16)}


def flux(batch: int, height: int, width: int) -> dict[str, Any]:
    pixels, words = height * width // 16, 3 + batch
    return {
        "hidden_states": torch.randn(batch, pixels, 4), "timestep": torch.rand(batch),
        "encoder_hidden_states": torch.randn(batch, words, 16),
        "pooled_projections": torch.randn(batch, 16), "guidance": torch.rand(batch) * 4,
        "img_ids": torch.randint(0, 9, (pixels, 3)).float(), "txt_ids": torch.zeros(words, 3),
    }  # fmt: skip


def prior(batch: int, _height: int, _width: int) -> dict[str, Any]:
    return {
        "hidden_states": torch.randn(batch, 16), "timestep": torch.arange(batch) * 7 + 1,
        "proj_embedding": torch.randn(batch, 16),
        "encoder_hidden_states": torch.randn(batch, 5, 16),
        "attention_mask": torch.arange(5) < torch.arange(batch)[:, None] + 3,
    }  # fmt: skip


def picture(batch: int, height: int, width: int) -> dict[str, Any]:
    return {"x": torch.rand(batch, 3, height * 2, width * 2)}


def line(batch: int, height: int, _width: int) -> dict[str, Any]:
    return {"sample": torch.randn(batch, 4, height), "timestep": torch.arange(batch) + 1}


_JOINT = {"joint_attention_dim": 16, "pooled_projection_dim": 16, "num_layers": 1,
          "in_channels": 4, "num_attention_heads": 2}  # fmt: skip

DIFFUSERS: dict[str, tuple[dict[str, Any], Callable[[int, int, int], Any]]] = {
    "UNet2DModel": (
        {**_UNET, "in_channels": 4, "out_channels": 4, "attention_head_dim": 8,
         "down_block_types": ("DownBlock2D", "AttnDownBlock2D"),
         "up_block_types": ("AttnUpBlock2D", "UpBlock2D")}, partial(at_time, 4)),
    "UNet2DConditionModel": (
        {**_UNET, **_TEXT, "down_block_types": ("DownBlock2D", "CrossAttnDownBlock2D"),
         "up_block_types": ("CrossAttnUpBlock2D", "UpBlock2D")}, with_text),
    "ControlNetModel": (
        {**_UNET, **_TEXT, "down_block_types": ("DownBlock2D", "CrossAttnDownBlock2D"),
         "conditioning_embedding_out_channels": (8, 16)}, with_control),
    "AutoencoderKL": (
        {"block_out_channels": (8, 16), "norm_num_groups": 4, "latent_channels": 4,
         "down_block_types": ("DownEncoderBlock2D",) * 2,
         "up_block_types": ("UpDecoderBlock2D",) * 2}, partial(latent, 3)),
    "VQModel": (
        {"block_out_channels": (8, 16), "norm_num_groups": 4, "num_vq_embeddings": 12,
         "down_block_types": ("DownEncoderBlock2D",) * 2,
         "up_block_types": ("UpDecoderBlock2D",) * 2}, partial(latent, 3)),
    "AutoencoderTiny": (
        {"encoder_block_out_channels": (8, 8), "decoder_block_out_channels": (8, 8),
         "num_encoder_blocks": (1, 1), "num_decoder_blocks": (1, 1)}, partial(latent, 3)),
    "DiTTransformer2DModel": (
        {"num_attention_heads": 2, "attention_head_dim": 8, "in_channels": 4, "num_layers": 2,
         "sample_size": 8, "num_embeds_ada_norm": 10, "norm_num_groups": 8}, of_classes),
    "PixArtTransformer2DModel": (
        {"num_attention_heads": 2, "attention_head_dim": 8, "in_channels": 4, "out_channels": 8,
         "num_layers": 1, "sample_size": 8, "cross_attention_dim": 16, "caption_channels": 16,
         "use_additional_conditions": False}, patches),
    "SD3Transformer2DModel": (
        {**_JOINT, "sample_size": 32, "attention_head_dim": 8, "caption_projection_dim": 16,
         "out_channels": 4}, joint),
    "FluxTransformer2DModel": (
        {**_JOINT, "patch_size": 1, "num_single_layers": 1, "attention_head_dim": 16,
         "axes_dims_rope": (4, 4, 8), "guidance_embeds": True}, flux),
    "PriorTransformer": (
        {"num_attention_heads": 2, "attention_head_dim": 8, "num_layers": 1,
         "embedding_dim": 16, "num_embeddings": 5, "additional_embeddings": 4}, prior),
    "T2IAdapter": ({"channels": (8, 16), "num_res_blocks": 1, "downscale_factor": 4}, picture),
    "UNet1DModel": (
        {"block_out_channels": (16, 32), "in_channels": 4, "out_channels": 4,
         "norm_num_groups": 8, "time_embedding_type": "positional", "use_timestep_embedding": True,
         "flip_sin_to_cos": True, "freq_shift": 1,
         "down_block_types": ("DownResnetBlock1D",) * 2, "mid_block_type": "MidResTemporalBlock1D",
         "up_block_types": ("UpResnetBlock1D",), "out_block_type": "OutConv1DBlock",
         "act_fn": "mish"}, line),
}  # fmt: skip


class Denoises(nn.Module):
    """Three steps of DDIM with a small network, as pipelines do it."""

    def __init__(self) -> None:
        super().__init__()
        library = importlib.import_module("diffusers")
        size, _ = DIFFUSERS["UNet2DModel"]
        self.unet = library.UNet2DModel(**size)
        self.scheduler = library.DDIMScheduler(num_train_timesteps=100)
        self.scheduler.set_timesteps(3)

    def forward(self, sample: torch.Tensor) -> torch.Tensor:
        for time in self.scheduler.timesteps:
            noise = self.unet(sample, time).sample
            sample = self.scheduler.step(noise, time, sample).prev_sample
        return sample


def ddim() -> Made:
    return Denoises(), images((2, 4, 16, 24), (3, 4, 24, 16))


# Graph networks ----------------------------------------------------------------------------------

CONVOLUTIONS: dict[str, dict[str, Any]] = {
    "GCNConv": {}, "GATConv": {"heads": 2}, "GATv2Conv": {"heads": 2}, "SAGEConv": {},
    "TransformerConv": {"heads": 2}, "ChebConv": {"K": 2}, "TAGConv": {}, "ARMAConv": {},
    "SGConv": {}, "GraphConv": {}, "LEConv": {}, "ResGatedGraphConv": {}, "MFConv": {},
    "FeaStConv": {},
}  # fmt: skip


class Graph(nn.Module):
    """Two convolutions, and the mean of each graph."""

    def __init__(self, make: Any, size: dict[str, Any]) -> None:
        super().__init__()
        library = importlib.import_module("torch_geometric.nn")
        self.first = make(6, 8, **size)
        self.second = make(8 * size.get("heads", 1), 5, **size)
        self.pool = library.global_mean_pool

    def forward(self, x: torch.Tensor, edges: torch.Tensor, graph: torch.Tensor) -> torch.Tensor:
        return self.pool(self.second(self.first(x, edges).relu(), edges), graph, 2)


def graph(name: str, size: dict[str, Any]) -> Made:
    make = getattr(importlib.import_module("torch_geometric.nn"), name)

    def inputs(nodes: int, edges: int) -> tuple[Any, ...]:
        return (torch.randn(nodes, 6), torch.randint(0, nodes, (2, edges)),
                (torch.arange(nodes) * 2 // nodes))  # fmt: skip

    return Graph(make, size), [inputs(7, 12), inputs(9, 20)]


# Adapters, quantized weights, sentences, detectors -----------------------------------------------


ADAPTERS = """
LoRA DoRA IA3 LoHa LoKr
"""


def mlp() -> nn.Module:
    return nn.Sequential(nn.Linear(32, 64), nn.GELU(), nn.Linear(64, 32))


def adapter(name: str) -> Made:
    library = importlib.import_module("peft")
    kind = {"DoRA": "LoRA"}.get(name, name)
    more: dict[str, Any] = {"use_dora": True} if name == "DoRA" else {}
    if name == "IA3":
        more = {"feedforward_modules": ["2"]}
    config = getattr(library, f"{kind}Config".replace("LoRA", "Lora"))
    model = library.get_peft_model(mlp(), config(target_modules=["0", "2"], **more))
    for parameter in model.parameters():  # adapters begin with zeros
        nn.init.normal_(parameter, std=0.2)
    return model, images((2, 32), (3, 32))


def quantized(config: str, more: dict[str, Any]) -> Made:
    library = importlib.import_module("torchao.quantization")
    model = mlp().eval()
    library.quantize_(model, getattr(library, config)(**more))
    return model, images((2, 32), (3, 32))


QUANTIZED: dict[str, tuple[str, dict[str, Any]]] = {
    "int8": ("Int8WeightOnlyConfig", {}),
    "int8-dynamic": ("Int8DynamicActivationInt8WeightConfig", {}),
    "intx": ("IntxWeightOnlyConfig", {}),
    "float8": ("Float8WeightOnlyConfig", {}),
    "intx-grouped": ("IntxWeightOnlyConfig", {"version": 2}),
}


class Sentences(nn.Module):
    """BERT with pooling and normalization as sentence-transformers stacks them."""

    def __init__(self, mode: str) -> None:
        super().__init__()
        hub = importlib.import_module("transformers")
        parts = importlib.import_module("sentence_transformers.models")
        config = hub.BertConfig(
            vocab_size=50, hidden_size=16, num_hidden_layers=1, num_attention_heads=2,
            intermediate_size=32, max_position_embeddings=40,
        )  # fmt: skip
        self.encoder = hub.BertModel(config)
        self.pooling = parts.Pooling(16, mode)
        self.normalize = parts.Normalize()

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
        tokens = self.encoder(input_ids, attention_mask).last_hidden_state
        features = {"token_embeddings": tokens, "attention_mask": attention_mask}
        return self.normalize(self.pooling(features))["sentence_embedding"]


def sentences(mode: str) -> Made:
    def inputs(batch: int, length: int) -> tuple[Any, ...]:
        mask = torch.ones(batch, length, dtype=torch.int64)
        mask[1:, length - 1 :] = 0
        return torch.randint(0, 50, (batch, length)), mask

    return Sentences(mode), [inputs(2, 6), inputs(3, 9)]


ROWS: dict[str, dict[str, Factory]] = {
    **IMAGES,
    "diffusers": {
        **{name: partial(diffusers, name, *row) for name, row in DIFFUSERS.items()},
        "ddim": ddim,
    },
    "torchaudio": {
        **{name: partial(transform, name, size) for name, size in WAVES.items()},
        **{name: partial(audio, name) for name in AUDIO.split()},
    },
    "torch_geometric": {name: partial(graph, name, size) for name, size in CONVOLUTIONS.items()},
    "peft": {name: partial(adapter, name) for name in ADAPTERS.split()},
    "torchao": {name: partial(quantized, *row) for name, row in QUANTIZED.items()},
    "transformers": TRANSFORMERS,
    "trained": TRAINED,
    "sentence-transformers": {mode: partial(sentences, mode) for mode in ("mean", "cls", "max")},
}
FACTORIES: dict[str, Factory] = {
    f"{family}/{name}": make for family, rows in ROWS.items() for name, make in rows.items()
}
"""Name → what makes the model and its inputs."""


def __getattr__(name: str) -> Factory:
    """The factories are attributes of this module, by names that Python's syntax has not."""
    if name not in FACTORIES:
        raise AttributeError(name)

    def make() -> Made:
        torch.manual_seed(0)
        return FACTORIES[name]()

    return make
