"""Models of images without weights, and functions of sizes that give them inputs."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch import nn

from torchferry.observer.maker import Maker, size_parameters
from torchferry.values.kinds import attempt
from torchferry.zoo.weights import draw_weights, seeded

__all__ = ["FREE", "build_drawn", "fit_sizes", "image"]

FREE = (96, 160), (128, 96)
"""Heights and widths: a model that takes both takes most. Unequal sides tell them apart, and no
convolution with the usual strides leaves fewer than three pixels of them."""


def build_drawn(build: Callable[[], nn.Module]) -> nn.Module:
    """Call a function that builds a model, in eval mode, its weights drawn.

    PyTorch's global generator is left as it is.
    """
    with torch.random.fork_rng(devices=[]), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what packages say of weights that are not loaded
        torch.manual_seed(0)
        model = build().eval()
    draw_weights(model, seeded(0))
    return model


def image(channels: int, batch_size: int, height: int, width: int) -> torch.Tensor:
    """Normally distributed images (batch_size, channels, height, width)."""
    shape = (batch_size, channels, height, width)
    return torch.randn(shape, generator=seeded(sum(shape)))


def fit_sizes(
    model: nn.Module,
    function: Callable[..., Any],
    title: str,
    fixed: Sequence[tuple[int, int]] = (),
    *,
    free: Sequence[tuple[int, int]] = FREE,
) -> Maker:
    """Find out which sizes of images a model takes, by running it.

    Args:
        model: in eval mode.
        function: of ``height``, ``width`` and perhaps other sizes, which have defaults; returns
            the positional arguments of the model.
        title: for messages.
        fixed: heights and widths to try if the model does not take any.
        free: two to try; if the model takes both, it takes any. Empty: the model has one size.

    Returns:
        A function of sizes: of ``height`` and ``width`` too if the model takes any.
    """
    if free and all(_runs(model, function, *size) for size in free):
        height, width = free[0]
        sizes = {**size_parameters(function), "height": height, "width": width}
        return Maker(function, title, sizes)
    height, width = next((size for size in fixed if _runs(model, function, *size)), FREE[0])
    bound = partial(function, height=height, width=width)
    others = {
        name: default
        for name, default in size_parameters(function).items()
        if name not in ("height", "width")
    }
    return Maker(bound, title, others)


def _runs(model: nn.Module, function: Callable[..., Any], height: int, width: int) -> bool:
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        _, error = attempt(lambda: model(*function(height=height, width=width)))
    return error is None
