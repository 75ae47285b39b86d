"""``torchvision:NAME``: an architecture of torchvision with random weights."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch

from torchferry.sources.images import FREE, build_drawn, fit_sizes, image
from torchferry.sources.loaded import RANDOM, Loaded
from torchferry.sources.package import call_package, import_package, unknown_name

__all__ = ["load_torchvision"]

_PREFIX = "torchvision"
_NOTHING_LOADED = {
    "weights": None,
    "weights_backbone": None,  # its default would be downloaded
    "init_weights": False,  # of GoogLeNet and Inception: slow, and drawn again
}
_FIXED = ((224, 224), (256, 256), (299, 299), (384, 384), (512, 512))


def load_torchvision(text: str) -> Loaded:
    """Build a model of torchvision, with a function of sizes that gives it inputs.

    Args:
        text: ``torchvision:resnet18``, as ``torchvision.models.list_models()`` names them.

    Raises:
        UsageError: torchvision is not installed, or has no such model.
    """
    models = import_package("torchvision.models", text)
    name = text.removeprefix(f"{_PREFIX}:")
    if name not in models.list_models():
        raise unknown_name(_PREFIX, name, models.list_models())
    builder = models.get_model_builder(name)
    taken = inspect.signature(builder).parameters
    chosen = {key: value for key, value in _NOTHING_LOADED.items() if key in taken}
    model = call_package(text, lambda: build_drawn(partial(builder, **chosen)))
    part = builder.__module__.removeprefix("torchvision.models.").partition(".")[0]
    own = getattr(model, "image_size", None)
    fixed = ((own, own), *_FIXED) if isinstance(own, int) else _FIXED
    function, free = _INPUTS.get(part, (_images, FREE))
    maker = fit_sizes(model, function, f"inputs of {text}", fixed, free=free)
    return Loaded(model, maker, note=RANDOM)


def _images(height: int, width: int, batch_size: int = 2) -> tuple[torch.Tensor]:
    return (image(3, batch_size, height, width),)


def _detected(
    height: int, width: int, second_height: int = 96, second_width: int = 224
) -> tuple[list[torch.Tensor]]:
    """Two images of different sizes, with values from 0 to 1, as detectors take them."""
    sizes = ((height, width), (second_height, second_width))
    return ([image(3, 1, *size)[0].sigmoid() for size in sizes],)


def _clips(height: int, width: int, batch_size: int = 2) -> tuple[torch.Tensor]:
    """Clips of 16 frames, the number that MViT is built for."""
    frames = image(3 * 16, batch_size, height, width)
    return (frames.reshape(batch_size, 3, 16, height, width),)


def _pairs(height: int, width: int, batch_size: int = 2) -> tuple[torch.Tensor, torch.Tensor]:
    """Two pictures a moment apart, for optical flow."""
    first = image(3, batch_size, height, width)
    return first, first.roll((2, 3), dims=(2, 3))


_INPUTS: dict[str, tuple[Callable[..., Any], Sequence[tuple[int, int]]]] = {
    "detection": (_detected, FREE),
    "video": (_clips, ((48, 64), (64, 80))),  # sixteen times the work of an image
    "optical_flow": (_pairs, ((128, 160), (192, 128))),  # at an eighth of it, RAFT has a pyramid
}
"""By the module of ``torchvision.models`` that defines a model: its inputs, and two sizes to try.
All others take images."""
