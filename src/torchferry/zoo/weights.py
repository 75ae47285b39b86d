"""Random weights that make a model sensitive to all of its inputs.

Hugging Face draws weights with a standard deviation of 0.02: attention is then nearly uniform,
and a wrong mask or position changes the output by less than any sensible tolerance. Here every
layer keeps its activations of order 1 instead.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import prod

import torch
from torch import nn
from torch.nn.utils.parametrize import ParametrizationList, is_parametrized

__all__ = ["draw_weights", "seeded"]


def seeded(seed: int) -> torch.Generator:
    """Return a generator of its own, so that PyTorch's global one is left alone."""
    return torch.Generator().manual_seed(seed)


_KEPT = ("A_log", "D", "dt_bias", "logit_scale", "logit_bias")
"""Parameters whose own initial values matter: 0.1 of noise is added. State space models decay by
the first, similarities are scaled by the last two."""

_UNIT = ("token", "position_embedding", "pos_embed", "position_embeddings", "queries")
"""Ends of the names of parameters that are added to, or put beside, embeddings."""

_INPUT_FIRST = ("Conv1D", "GptOssExperts")
"""Classes whose matrices are (in, out)."""


@torch.no_grad()
def draw_weights(model: nn.Module, generator: torch.Generator) -> None:
    """Draw all parameters and batch statistics of a model again, in place.

    A matrix or kernel gets a standard deviation of 1/sqrt(fan in), so that a unit input gives a
    unit output; an embedding 1, or 1/sqrt(size) when the output layer shares it; the scale of a
    normalisation stays near the constant it has; vectors (biases, offsets) get 0.1. Tied weights
    stay tied, a parametrized weight (weight norm) is drawn as a whole.
    """
    output_weights = {
        id(module.weight) for module in model.modules() if isinstance(module, nn.Linear)
    }
    drawn: set[int] = set()
    for module in model.modules():
        if isinstance(module, ParametrizationList):
            continue
        if is_parametrized(module):
            _draw_parametrized(module, generator)
        for name, parameter in module.named_parameters(recurse=False):
            if id(parameter) in drawn:
                continue
            drawn.add(id(parameter))
            mean, std = _distribution(module, name, parameter, id(parameter) in output_weights)
            noise = torch.randn(parameter.shape, generator=generator, dtype=torch.float32)
            parameter.copy_(noise.mul_(std).add_(mean))
        for statistic, low in _batch_statistics(module):
            noise = torch.rand(statistic.shape, generator=generator, dtype=torch.float32)
            statistic.copy_(noise.add_(low))
        if isinstance(module, nn.Embedding) and module.padding_idx is not None:
            module.weight[module.padding_idx].zero_()


def _draw_parametrized(module: nn.Module, generator: torch.Generator) -> None:
    """Assign a drawn tensor; the parametrization finds the parameters that make it."""
    for name in list(module.parametrizations):  # type: ignore[arg-type]  # a dict there
        weight = getattr(module, name)
        std = _distribution(module, name, weight, False)[1]
        noise = torch.randn(weight.shape, generator=generator, dtype=torch.float32)
        setattr(module, name, noise.mul_(std).to(weight.dtype))


def _distribution(
    module: nn.Module, name: str, parameter: torch.Tensor, is_output: bool
) -> tuple[float | torch.Tensor, float]:
    """Mean and standard deviation of a parameter."""
    kind = type(module).__name__
    if name in _KEPT:
        return parameter.float(), 0.1
    if parameter.ndim < 2 or name.endswith("bias"):
        # Gemma multiplies by 1 + weight, whose constant is 0
        is_scale = name == "weight" and "Norm" in kind and bool((parameter != 0).any())
        return (1.0 if is_scale or "scale" in name else 0.0), 0.1
    if isinstance(module, nn.Embedding | nn.EmbeddingBag):
        return 0.0, (parameter.shape[-1] ** -0.5 if is_output else 1.0)
    if name.endswith(_UNIT):
        return 0.0, 1.0
    if isinstance(module, nn.ConvTranspose1d | nn.ConvTranspose2d | nn.ConvTranspose3d):
        return 0.0, prod((parameter.shape[0], *parameter.shape[2:])) ** -0.5
    if isinstance(module, nn.Conv1d | nn.Conv2d | nn.Conv3d):
        return 0.0, prod(parameter.shape[1:]) ** -0.5
    return 0.0, parameter.shape[-2 if kind in _INPUT_FIRST else -1] ** -0.5


def _batch_statistics(module: nn.Module) -> Iterator[tuple[torch.Tensor, float]]:
    """Running mean and variance with the lower end of the unit interval to draw them from."""
    for name, low in (("running_mean", -0.5), ("running_var", 0.5)):
        statistic = getattr(module, name, None)
        if isinstance(statistic, torch.Tensor):
            yield statistic, low
