"""``timm:NAME``: an architecture of timm with random weights."""

from __future__ import annotations

from functools import partial

import torch

from torchferry.sources.images import FREE, build_drawn, fit_sizes, image
from torchferry.sources.loaded import RANDOM, Loaded
from torchferry.sources.package import call_package, import_package, unknown_name

__all__ = ["load_timm"]

_PREFIX = "timm"


def load_timm(text: str) -> Loaded:
    """Build a model of timm, with a function of sizes that gives it inputs.

    Args:
        text: ``timm:resnet18`` or ``timm:resnet18.a1_in1k``, as ``timm.list_models()`` and
            ``timm.list_pretrained()`` name them.

    Raises:
        UsageError: timm is not installed, or has no such model.
    """
    timm = import_package("timm", text)
    name = text.removeprefix(f"{_PREFIX}:")
    if name not in timm.list_models() and name not in timm.list_models(pretrained=True):
        raise unknown_name(_PREFIX, name, timm.list_models())
    build = partial(timm.create_model, name, pretrained=False)
    model = call_package(text, lambda: build_drawn(build))
    configuration = getattr(model, "pretrained_cfg", None) or {}
    channels, *size = configuration.get("input_size", (3, 224, 224))

    def images(height: int, width: int, batch_size: int = 2) -> tuple[torch.Tensor]:
        return (image(channels, batch_size, height, width),)

    free = () if configuration.get("fixed_input_size", False) else FREE
    maker = fit_sizes(model, images, f"inputs of {text}", [(size[0], size[1])], free=free)
    return Loaded(model, maker, note=RANDOM)
