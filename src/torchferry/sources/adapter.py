"""Folders with an adapter of PEFT: its base model is loaded, and the adapter merged into it."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

from torch import nn

from torchferry.errors import UsageError
from torchferry.sources.checkpoint import load_checkpoint, read_json
from torchferry.sources.loaded import Loaded
from torchferry.sources.package import call_package, import_package

__all__ = ["is_adapter", "load_adapter"]

_SETTINGS, _WEIGHTS = "adapter_config.json", "adapter_model.safetensors"


def is_adapter(text: str) -> bool:
    """Whether a folder holds an adapter of PEFT."""
    return bool(text) and (Path(text) / _SETTINGS).is_file()


def load_adapter(text: str) -> Loaded:
    """Load the base model with the adapter merged into its weights, in eval mode.

    Args:
        text: the folder. ``adapter_config.json`` names the folder of the base model, absolute or
            as seen from the adapter's folder or the current one.

    Raises:
        UsageError: PEFT or a folder is missing, weights are pickled or do not fit, or the adapter
            is of a kind that cannot be merged.
    """
    folder = Path(text)
    settings = read_json(folder / _SETTINGS)
    peft = import_package("peft", f"the adapter {text}")
    if not (folder / _WEIGHTS).is_file():
        raise UsageError(
            f"{folder} has no {_WEIGHTS}; torchferry loads no pickled weights: save the adapter "
            "again with save_pretrained"
        )
    base = load_checkpoint(_base_folder(folder, settings))
    kind = str(settings.get("peft_type", "")).lower()
    model = call_package(text, lambda: _merge(peft, base, folder, kind))
    return Loaded(model.eval(), note=f"{kind} adapter merged")


def _base_folder(folder: Path, settings: Any) -> Path:
    name = settings.get("base_model_name_or_path") if isinstance(settings, dict) else None
    places = [place / str(name) for place in (folder, Path())] if name else []
    found = next((place for place in places if place.is_dir()), None)
    if found is None:
        raise UsageError(
            f"{folder / _SETTINGS} names the base model {name!r}, which is not a folder here "
            "(torchferry downloads nothing); set base_model_name_or_path to the folder that has it"
        )
    return found


def _merge(peft: Any, base: nn.Module, folder: Path, kind: str) -> nn.Module:
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        adapted = peft.PeftModel.from_pretrained(base, str(folder), is_trainable=False)
    lacking = [str(one.message) for one in said if "missing adapter keys" in str(one.message)]
    if lacking:  # PEFT goes on with fresh ones
        raise UsageError(
            f"{folder / _WEIGHTS} lacks weights of the adapter: {lacking[0][:300]}; is "
            f"{_SETTINGS} of the same adapter?"
        )
    if not hasattr(adapted.base_model, "merge_and_unload"):
        raise UsageError(
            f"{folder} is a {kind} adapter, which cannot be merged into the weights: give "
            "package.module:factory, a function that returns the PeftModel"
        )
    merged: nn.Module = adapted.merge_and_unload(safe_merge=True)
    return merged
