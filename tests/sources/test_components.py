from __future__ import annotations

from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

from torchferry.exporter.export import export
from torchferry.sources.components import COMPONENTS


class Settings(dict[str, Any]):
    """Settings by attribute and by key, as those of diffusers are."""

    def __getattr__(self, name: str) -> Any:
        if name in self:
            return self[name]
        raise AttributeError(name)


class UNet(nn.Module):
    """Takes what UNets take, and answers as they do."""

    def __init__(self) -> None:
        super().__init__()
        self.convolution, self.linear = nn.Conv2d(4, 4, 3, padding=1), nn.Linear(6, 4)

    def forward(self, sample: Any, timestep: Any, encoder_hidden_states: Any = None,
                timestep_cond: Any = None, added_cond_kwargs: Any = None,
                return_dict: bool = True) -> Any:  # fmt: skip
        assert not return_dict
        x = self.convolution(sample) + timestep * 0.01
        if encoder_hidden_states is not None:
            x = x + self.linear(encoder_hidden_states).mean(1)[..., None, None]
        if timestep_cond is not None:
            x = x * timestep_cond.mean(1)[:, None, None, None]
        if added_cond_kwargs is not None:
            both = added_cond_kwargs["text_embeds"].sum(1) + added_cond_kwargs["time_ids"].sum(1)
            x = x + both[:, None, None, None] * 0.001
        return (x,)


class Transformer(nn.Module):
    def forward(self, hidden_states: Any, encoder_hidden_states: Any, pooled_projections: Any,
                timestep: Any, txt_ids: Any = None, img_ids: Any = None, guidance: Any = None,
                return_dict: bool = True) -> Any:  # fmt: skip
        assert not return_dict
        one = encoder_hidden_states.mean((1, 2)) + pooled_projections.mean(1) + timestep * 0.01
        x = hidden_states + one.view(-1, *[1] * (hidden_states.ndim - 1))
        if img_ids is None:
            return (x,)
        return (x + img_ids.sum(1)[:, None] + txt_ids.sum() + guidance[:, None, None],)


class Autoencoder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.down, self.up = nn.Conv2d(3, 8, 2, stride=2), nn.ConvTranspose2d(4, 3, 2, stride=2)

    def encode(self, sample: Any) -> Any:
        return SimpleNamespace(latent_dist=SimpleNamespace(parameters=self.down(sample)))

    def decode(self, latent: Any, return_dict: bool = True) -> Any:
        assert not return_dict
        return (self.up(latent),)


IMAGES = Settings(in_channels=4, cross_attention_dim=6)
TEXT_AND_TIME = Settings(
    in_channels=4, cross_attention_dim=[6, 6], time_cond_proj_dim=5,
    addition_embed_type="text_time", addition_time_embed_dim=2,
    projection_class_embeddings_input_dim=20,
)  # fmt: skip
PATCHES = Settings(in_channels=4, joint_attention_dim=6, pooled_projection_dim=3,
                   guidance_embeds=True)  # fmt: skip
VAE = Settings(in_channels=3, latent_channels=4)

UNET = ["sample", "timestep", "encoder_hidden_states"]
GIVEN = ["hidden_states", "encoder_hidden_states", "pooled_projections", "timestep"]
CASES = [
    ("UNet2DConditionModel", UNet, IMAGES, UNET, "out_sample"),
    ("UNet2DConditionModel", UNet, TEXT_AND_TIME,
     [*UNET, "timestep_cond", "text_embeds", "time_ids"], "out_sample"),
    ("UNet2DModel", UNet, IMAGES, UNET[:2], "out_sample"),
    ("SD3Transformer2DModel", Transformer, PATCHES, GIVEN, "out_hidden_states"),
    ("FluxTransformer2DModel", Transformer, PATCHES, [*GIVEN, "txt_ids", "img_ids", "guidance"],
     "out_hidden_states"),
    ("vae_encoder", Autoencoder, VAE, ["sample"], "latent_parameters"),
    ("vae_decoder", Autoencoder, VAE, ["latent_sample"], "sample"),
]  # fmt: skip


@pytest.mark.sample(3)
@pytest.mark.parametrize(("kind", "build", "config", "names", "output"), CASES)
def test_names_are_those_of_optimum_and_every_size_is_free(
    kind: str, build: type[nn.Module], config: Settings, names: list[str], output: str
) -> None:
    wrap, inputs = COMPONENTS[kind]
    program = export(wrap(build()).eval(), partial(inputs, config))
    report = program.report
    assert report is not None
    assert report.ok, report.problems
    assert [value.name for value in program.model.graph.inputs] == names
    assert [value.name for value in program.model.graph.outputs] == [output]
    assert all(one["status"].startswith("verified") for one in report.data["dimensions"])
    made = [one for one in report.data["checks"] if one["inputs"] == "made" and one["outputs"]]
    assert len(made) >= 3
    assert any(one["sizes"]["batch_size"] == 1 for one in made)


def test_inputs_depend_on_their_sizes_only() -> None:
    _, inputs = COMPONENTS["UNet2DConditionModel"]
    first, second = inputs(TEXT_AND_TIME), inputs(TEXT_AND_TIME)
    assert all(torch.equal(first[name], second[name]) for name in first)
    assert first["timestep"].shape == ()
