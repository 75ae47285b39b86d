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

__all__ = ["draw_weights", "seeded"]


def seeded(seed: int) -> torch.Generator:
    """Return a generator of its own, so that PyTorch's global one is left alone."""
    return torch.Generator().manual_seed(seed)


@torch.no_grad()
def draw_weights(model: nn.Module, generator: torch.Generator) -> None:
    """Draw all parameters and batch statistics of a model again, in place.

    A matrix or kernel gets a standard deviation of 1/sqrt(fan in), so that a unit input gives a
    unit output; an embedding 1, or 1/sqrt(size) when the output layer shares it; the scale of a
    normalisation stays near 1; vectors (biases, offsets) get 0.1. Tied weights stay tied.
    """
    output_weights = {
        id(module.weight) for module in model.modules() if isinstance(module, nn.Linear)
    }
    drawn: set[int] = set()
    for module in model.modules():
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


def _distribution(
    module: nn.Module, name: str, parameter: nn.Parameter, is_output: bool
) -> tuple[float, float]:
    """Mean and standard deviation of a parameter."""
    if parameter.ndim < 2:
        is_scale = name == "weight" and "Norm" in type(module).__name__
        return (1.0 if is_scale else 0.0), 0.1
    if isinstance(module, nn.Embedding):
        return 0.0, (parameter.shape[-1] ** -0.5 if is_output else 1.0)
    if type(module).__name__ == "Conv1D":  # GPT-2's linear layer: (in, out)
        return 0.0, parameter.shape[0] ** -0.5
    if isinstance(module, nn.ConvTranspose1d | nn.ConvTranspose2d | nn.ConvTranspose3d):
        return 0.0, prod((parameter.shape[0], *parameter.shape[2:])) ** -0.5
    if isinstance(module, nn.Conv1d | nn.Conv2d | nn.Conv3d):
        return 0.0, prod(parameter.shape[1:]) ** -0.5
    return 0.0, parameter.shape[-1] ** -0.5


def _batch_statistics(module: nn.Module) -> Iterator[tuple[torch.Tensor, float]]:
    """Running mean and variance with the lower end of the unit interval to draw them from."""
    for name, low in (("running_mean", -0.5), ("running_var", 0.5)):
        statistic = getattr(module, name, None)
        if isinstance(statistic, torch.Tensor):
            yield statistic, low
