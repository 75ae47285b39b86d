"""From a row of the tables to a model: configuration, class, weights."""

from __future__ import annotations

import inspect
import warnings
from typing import Any

import torch
from torch import nn

from torchferry.errors import UsageError
from torchferry.seams.huggingface import classes_of
from torchferry.zoo.family import SIZES, Family, Plain
from torchferry.zoo.library import check_transformers, import_transformers
from torchferry.zoo.states import TASKS
from torchferry.zoo.weights import draw_weights

__all__ = ["make_config", "make_model", "make_plain", "make_untouched", "model_class"]


def make_config(family: Family) -> Any:
    """The configuration of a family: `SIZES` where it has such an entry, and the row's own.

    Raises:
        UsageError: transformers is missing, does not know the family, or does not take the sizes.
    """
    transformers = check_transformers(f"zoo:{family.name}", family.since)
    kind = family.kind or family.name
    if kind not in transformers.CONFIG_MAPPING:
        raise UsageError(
            f"zoo:{family.name} needs a newer transformers: {transformers.__version__} has no "
            f"model type {kind!r}"
        )
    cls = transformers.CONFIG_MAPPING[kind]
    known = set(inspect.signature(cls.__init__).parameters)

    def own(name: str) -> str:
        return name if name in known else getattr(cls, "attribute_map", {}).get(name, name)

    unknown = [name for name in family.sizes if own(name) not in known]
    if unknown:
        raise UsageError(
            f"zoo:{family.name}: {cls.__name__} of transformers {transformers.__version__} has "
            f"no entry {unknown[0]!r}"
        )
    chosen = {own(name): value for name, value in SIZES.items() if own(name) in known}
    chosen |= {own(name): value for name, value in family.sizes.items()}
    try:
        return cls(**chosen)
    except (TypeError, ValueError) as error:
        raise UsageError(
            f"zoo:{family.name}: {cls.__name__} of transformers {transformers.__version__} does "
            f"not take its sizes: {error}"
        ) from error


def model_class(family: Family, task: str, config: Any) -> type[nn.Module]:
    """The class of transformers for a task.

    Raises:
        UsageError: transformers has none.
    """
    transformers = import_transformers(f"zoo:{family.name}/{task}")
    for auto in TASKS[task].autos:
        known = getattr(transformers, auto, None)
        if known is not None and type(config) in classes_of(known):
            found = classes_of(known)[type(config)]
            cls: type[nn.Module] = found[0] if isinstance(found, tuple) else found
            return cls
    raise UsageError(
        f"zoo:{family.name}/{task}: transformers {transformers.__version__} has no class for it"
    )


def make_model(family: Family, task: str, generator: torch.Generator) -> nn.Module:
    """Build a model in eval mode, its weights drawn.

    PyTorch's global generator is left as it is.

    Raises:
        UsageError: transformers is missing or too old for it.
    """
    model = make_untouched(family, task)
    draw_weights(model, generator)
    return model


def make_untouched(family: Family, task: str) -> nn.Module:
    """Build a model in eval mode with the weights that its class gives it.

    PyTorch's global generator is left as it is.

    Raises:
        UsageError: transformers is missing or too old for it.
    """
    with torch.random.fork_rng(devices=[]), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what modules and configurations say of themselves
        config = make_config(family)
        cls: Any = model_class(family, task, config)
        torch.manual_seed(0)  # what is kept of the class's own weights is the same every time
        model: nn.Module = cls(config).eval()
    return model


def make_plain(entry: Plain, generator: torch.Generator) -> nn.Module:
    """Build a module of plain PyTorch in eval mode, its weights drawn."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = entry.factory().eval()
    draw_weights(model, generator)
    return model
