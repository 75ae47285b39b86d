"""Folders of diffusers: each component is a model of its own.

The components get the names of optimum's export, which its pipelines for onnxruntime read.
"""

from __future__ import annotations

import warnings
from functools import partial
from pathlib import Path
from typing import Any

from torch import nn

from torchferry.errors import UsageError
from torchferry.observer.maker import Maker, size_parameters
from torchferry.sources.checkpoint import load_checkpoint
from torchferry.sources.components import COMPONENTS
from torchferry.sources.loaded import Loaded
from torchferry.sources.mapped import read_json
from torchferry.sources.package import call_package, import_package

__all__ = ["component_names", "is_diffusion", "load_component"]

_INDEX = "model_index.json"
_VAE, _VAES = "vae", ("AutoencoderKL",)
_DEEP = ("XL", "Diffusion3")
"""In the name of a pipeline: it reads the states of all layers of its text encoders."""


def is_diffusion(text: str) -> bool:
    """Whether a text names a folder of diffusers, or a component of one: ``FOLDER:unet``."""
    return (_split(text)[0] / _INDEX).is_file()


def component_names(text: str) -> list[str]:
    """The components of a folder that can be exported; empty if the text is no such folder.

    Raises:
        UsageError: the index is damaged, or a component is of a class that is not known.
    """
    folder, part = _split(text)
    return list(_components(folder)) if not part and is_diffusion(text) else []


def load_component(text: str) -> Loaded:
    """Load a component, with a function of sizes that gives it inputs.

    Args:
        text: ``FOLDER:unet``; the encoder and the decoder of a ``vae`` are two components.

    Raises:
        UsageError: no component is named, or it cannot be loaded.
    """
    folder, part = _split(text)
    known = _components(folder)
    if part not in known:
        said = f"has no component {part!r}" if part else "is a pipeline of several models"
        raise UsageError(
            f"{folder} {said}: export the whole folder, or name one of "
            f"{', '.join(f'{folder}:{name}' for name in known)}"
        )
    library, kind = known[part]
    model: Any
    place = folder / (_VAE if part.startswith(_VAE) else part)
    if library == "transformers":
        model = load_checkpoint(place)
    else:
        diffusers = import_package("diffusers", text)
        model = call_package(text, lambda: _load(getattr(diffusers, kind), place))
    if any(mark in _read_index(folder)["_class_name"] for mark in _DEEP):
        model.config.output_hidden_states = True
    wrap, inputs = COMPONENTS[kind if kind in COMPONENTS else part]
    make = partial(inputs, model.config)
    maker = Maker(make, f"inputs of {text}", size_parameters(make))
    return Loaded(wrap(model).eval(), maker)


def _split(text: str) -> tuple[Path, str]:
    place, _, part = text.rpartition(":")
    return (Path(place), part) if place and not Path(text).is_dir() else (Path(text), "")


def _read_index(folder: Path) -> dict[str, Any]:
    index = read_json(folder / _INDEX)
    if not isinstance(index, dict) or not isinstance(index.get("_class_name"), str):
        raise UsageError(f"{folder / _INDEX} names no pipeline; copy the folder again")
    return index


def _components(folder: Path) -> dict[str, tuple[str, str]]:
    """Library and class of each component by its name; schedulers and such are left out."""
    found: dict[str, tuple[str, str]] = {}
    for name, value in _read_index(folder).items():
        if not isinstance(value, list) or len(value) != 2 or None in value:
            continue
        library, kind = map(str, value)
        if not name.startswith(("text_encoder", "unet", "transformer", _VAE)):
            continue
        if library not in ("diffusers", "transformers") or kind not in {*COMPONENTS, *_VAES}:
            raise UsageError(
                f"{folder} has a {name} of the class {library}.{kind}, whose inputs are not "
                "known: give package.module:factory, a function that returns it and its inputs"
            )
        halves = (f"{name}_encoder", f"{name}_decoder") if kind in _VAES else (name,)
        found |= dict.fromkeys(halves, (library, kind))
    return found


def _load(model_class: Any, place: Path) -> nn.Module:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # diffusers says what it will rename
        model, info = model_class.from_pretrained(
            str(place), local_files_only=True, use_safetensors=True, output_loading_info=True
        )
    if missing := sorted(info["missing_keys"]):
        raise UsageError(
            f"{place} lacks {len(missing)} weights of {model_class.__name__}, the first is "
            f"{missing[0]!r}; is config.json of the same model?"
        )
    loaded: nn.Module = model
    return loaded
