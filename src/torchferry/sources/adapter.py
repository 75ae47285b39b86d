"""Folders with an adapter of PEFT: its base model, the adapter merged into it or an input."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.func import functional_call

from torchferry.capturer import accept_aliases
from torchferry.errors import UsageError
from torchferry.sources.checkpoint import load_checkpoint
from torchferry.sources.loaded import Loaded
from torchferry.sources.mapped import read_json
from torchferry.sources.package import call_package, import_package
from torchferry.zoo.tasks import input_sets

__all__ = ["is_adapter", "load_adapter"]

_INPUTS = ":inputs"
_SETTINGS, _WEIGHTS = "adapter_config.json", "adapter_model.safetensors"


def is_adapter(text: str) -> bool:
    """Whether a text is a folder with an adapter of PEFT, or such a folder and ``:inputs``."""
    return bool(text) and (_folder(text) / _SETTINGS).is_file()


def _folder(text: str) -> Path:
    return Path(text.removesuffix(_INPUTS))


class WithAdapter(nn.Module):
    """A model that takes the weights of an adapter by name, after its own arguments."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, adapter: dict[str, torch.Tensor], **inputs: Any) -> Any:
        """Return what the model does with these weights in the place of its own."""
        return functional_call(self.model, adapter, (), inputs)


def load_adapter(text: str) -> Loaded:
    """Load the base model with the adapter merged into its weights, in eval mode.

    Args:
        text: the folder; with ``:inputs`` behind it the adapter's weights are inputs of the
            model, so that one file serves every adapter of that shape and scale.
            ``adapter_config.json`` names the folder of the base model, absolute or
            as seen from the adapter's folder or the current one.

    Raises:
        UsageError: PEFT or a folder is missing, weights are pickled or do not fit, or the adapter
            is of a kind that cannot be merged.
    """
    folder = _folder(text)
    settings = read_json(folder / _SETTINGS)
    peft = import_package("peft", f"the adapter {text}")
    if not (folder / _WEIGHTS).is_file():
        raise UsageError(
            f"{folder} has no {_WEIGHTS}; torchferry loads no pickled weights: save the adapter "
            "again with save_pretrained"
        )
    base = load_checkpoint(_base_folder(folder, settings))
    kind = str(settings.get("peft_type", "")).lower()
    if text.endswith(_INPUTS):
        own = set(base.parameters())
        adapted = call_package(text, lambda: _adapt(peft, base, folder)).get_base_model().eval()
        named = {name: p.detach() for name, p in adapted.named_parameters() if p not in own}
        sets = [{"adapter": named, **accept_aliases(adapted, one)} for one in input_sets(adapted)]
        return Loaded(WithAdapter(adapted).eval(), sets, note=f"{kind} adapter as inputs")
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


def _adapt(peft: Any, base: nn.Module, folder: Path) -> Any:
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        adapted = peft.PeftModel.from_pretrained(base, str(folder), is_trainable=False)
    lacking = [str(one.message) for one in said if "missing adapter keys" in str(one.message)]
    if lacking:  # PEFT goes on with fresh ones
        raise UsageError(
            f"{folder / _WEIGHTS} lacks weights of the adapter: {lacking[0][:300]}; is "
            f"{_SETTINGS} of the same adapter?"
        )
    return adapted


def _merge(peft: Any, base: nn.Module, folder: Path, kind: str) -> nn.Module:
    adapted = _adapt(peft, base, folder)
    if not hasattr(adapted.base_model, "merge_and_unload"):
        raise UsageError(
            f"{folder} is a {kind} adapter, which cannot be merged into the weights: give "
            "package.module:factory, a function that returns the PeftModel"
        )
    merged: nn.Module = adapted.merge_and_unload(safe_merge=True)
    return merged
