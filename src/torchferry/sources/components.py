"""Components of diffusion pipelines under the names that optimum's export gives them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import nn

from torchferry.zoo.weights import seeded

__all__ = ["COMPONENTS", "Component"]

Tensors = dict[str, torch.Tensor]


class Component(nn.Module):
    """A model under the names that pipelines use; subclasses state the inputs."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model


class TextEncoder(Component):
    """Tokens to ``last_hidden_state`` and what else the pipeline reads."""

    def forward(self, input_ids: torch.Tensor) -> Tensors:
        """Return embeddings by name; the states of all layers if the pipeline reads them."""
        outputs = self.model(input_ids=input_ids)
        names = ("text_embeds", "last_hidden_state", "pooler_output")
        found = {name: outputs[name] for name in names if name in outputs}
        states = outputs.get("hidden_states") or ()
        return found | {f"hidden_states.{i}": state for i, state in enumerate(states)}


class Denoiser(Component):
    """A UNet: the noise of a sample at a time step."""

    def forward(
        self,
        *,
        sample: torch.Tensor,
        timestep: torch.Tensor,
        encoder_hidden_states: torch.Tensor | None = None,
        timestep_cond: torch.Tensor | None = None,
        text_embeds: torch.Tensor | None = None,
        time_ids: torch.Tensor | None = None,
    ) -> Tensors:
        """Return ``out_sample``."""
        more: dict[str, Any] = {}
        if encoder_hidden_states is not None:
            more["encoder_hidden_states"] = encoder_hidden_states
        if timestep_cond is not None:
            more["timestep_cond"] = timestep_cond
        if text_embeds is not None:
            more["added_cond_kwargs"] = {"text_embeds": text_embeds, "time_ids": time_ids}
        return {"out_sample": self.model(sample, timestep, return_dict=False, **more)[0]}


class Transformer(Component):
    """A transformer over patches of the sample, given text."""

    def forward(
        self,
        *,
        hidden_states: torch.Tensor,
        encoder_hidden_states: torch.Tensor,
        pooled_projections: torch.Tensor,
        timestep: torch.Tensor,
        txt_ids: torch.Tensor | None = None,
        img_ids: torch.Tensor | None = None,
        guidance: torch.Tensor | None = None,
    ) -> Tensors:
        """Return ``out_hidden_states``."""
        places = {"txt_ids": txt_ids, "img_ids": img_ids, "guidance": guidance}
        outputs = self.model(
            hidden_states=hidden_states,
            encoder_hidden_states=encoder_hidden_states,
            pooled_projections=pooled_projections,
            timestep=timestep,
            return_dict=False,
            **{name: value for name, value in places.items() if value is not None},
        )
        return {"out_hidden_states": outputs[0]}


class ImageEncoder(Component):
    """The first half of an autoencoder."""

    def forward(self, sample: torch.Tensor) -> Tensors:
        """Return ``latent_parameters``: mean and logarithm of the variance."""
        encoder: Any = self.model
        return {"latent_parameters": encoder.encode(sample).latent_dist.parameters}


class ImageDecoder(Component):
    """The second half of an autoencoder."""

    def forward(self, latent_sample: torch.Tensor) -> Tensors:
        """Return ``sample``."""
        decoder: Any = self.model
        return {"sample": decoder.decode(latent_sample, return_dict=False)[0]}


def _tokens(config: Any, batch_size: int = 2, sequence_length: int = 7) -> Tensors:
    shape, generator = (batch_size, sequence_length), seeded(batch_size + sequence_length)
    return {"input_ids": torch.randint(config.vocab_size, shape, generator=generator)}


def _noise_of_text(
    config: Any, batch_size: int = 2, height: int = 16, width: int = 40, sequence_length: int = 7
) -> Tensors:
    draw = _drawer(batch_size, height, width, sequence_length)
    size = config.cross_attention_dim
    inputs = {
        "sample": draw(config.in_channels, height, width),
        "timestep": torch.tensor(17 + height),
        "encoder_hidden_states": draw(sequence_length, size[0] if type(size) is list else size),
    }
    if config.get("time_cond_proj_dim") is not None:
        inputs["timestep_cond"] = draw(config.time_cond_proj_dim)
    if config.get("addition_embed_type") == "text_time":
        time = 6 * config.addition_time_embed_dim
        inputs["text_embeds"] = draw(config.projection_class_embeddings_input_dim - time)
        inputs["time_ids"] = draw(6).abs().mul(100).floor()
    return inputs


def _noise(config: Any, batch_size: int = 2, height: int = 16, width: int = 40) -> Tensors:
    sample = _drawer(batch_size, height, width)(config.in_channels, height, width)
    return {"sample": sample, "timestep": torch.tensor(17 + height)}


def _conditions(draw: Callable[..., torch.Tensor], config: Any, length: int) -> Tensors:
    return {
        "encoder_hidden_states": draw(length, config.joint_attention_dim),
        "pooled_projections": draw(config.pooled_projection_dim),
        "timestep": draw().abs() * 100,
    }


def _patches(
    config: Any, batch_size: int = 2, height: int = 16, width: int = 20, sequence_length: int = 7
) -> Tensors:
    draw = _drawer(batch_size, height, width, sequence_length)
    states = draw(config.in_channels, height, width)
    return {"hidden_states": states, **_conditions(draw, config, sequence_length)}


def _packed_patches(
    config: Any, batch_size: int = 2, packed_height_width: int = 24, sequence_length: int = 7
) -> Tensors:
    draw = _drawer(batch_size, packed_height_width, sequence_length)
    inputs = {
        "hidden_states": draw(packed_height_width, config.in_channels),
        **_conditions(draw, config, sequence_length),
        "txt_ids": torch.zeros(sequence_length, 3),
        "img_ids": torch.arange(packed_height_width * 3).reshape(-1, 3) % 5.0,
    }
    return inputs | ({"guidance": draw().abs()} if config.guidance_embeds else {})


def _images(
    config: Any, batch_size: int = 2, sample_height: int = 32, sample_width: int = 40
) -> Tensors:
    draw = _drawer(batch_size, sample_height, sample_width)
    return {"sample": draw(config.in_channels, sample_height, sample_width)}


def _latents(
    config: Any, batch_size: int = 2, latent_height: int = 8, latent_width: int = 10
) -> Tensors:
    draw = _drawer(batch_size, latent_height, latent_width)
    return {"latent_sample": draw(config.latent_channels, latent_height, latent_width)}


def _drawer(batch_size: int, *sizes: int) -> Callable[..., torch.Tensor]:
    """Draws tensors of this batch that are the same whenever the sizes are."""
    generator = seeded(batch_size + sum(sizes))
    return lambda *shape: torch.randn((batch_size, *shape), generator=generator)


COMPONENTS: Mapping[str, tuple[type[Component], Callable[..., Tensors]]] = {
    "CLIPTextModel": (TextEncoder, _tokens),
    "CLIPTextModelWithProjection": (TextEncoder, _tokens),
    "T5EncoderModel": (TextEncoder, _tokens),
    "UNet2DConditionModel": (Denoiser, _noise_of_text),
    "UNet2DModel": (Denoiser, _noise),
    "SD3Transformer2DModel": (Transformer, _patches),
    "FluxTransformer2DModel": (Transformer, _packed_patches),
    "vae_encoder": (ImageEncoder, _images),
    "vae_decoder": (ImageDecoder, _latents),
}
"""By the class, or the half of an autoencoder: the module that is exported, and the function of a
configuration and of sizes that gives its inputs."""
