"""Private attributes of transformers: of configurations, automatic classes and caches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from torchferry.seams.table import lacking, probe

__all__ = [
    "BOOKKEEPING",
    "attention_of",
    "classes_of",
    "experts_in_float64",
    "export_patches",
    "set_cache_dtype",
    "set_window",
]  # fmt: skip

BOOKKEEPING = frozenset({"_output_capturing_hooks_installed"})
"""Attributes that the first call of a model sets (transformers 5), whatever it computes."""


def experts_in_float64(config: Any) -> None:
    """Have a mixture of experts multiply in a way that has float64 too."""
    if getattr(config, "_experts_implementation", None) == "grouped_mm":
        config._experts_implementation = "batched_mm"


def attention_of(config: Any) -> str | None:
    """The attention that a configuration was made with; ``None`` for the default."""
    found: str | None = getattr(config, "_attn_implementation_internal", None)
    return found


def classes_of(auto: Any) -> Mapping[type[Any], Any]:
    """The model classes of an automatic class (``AutoModel``), by class of configuration."""
    found: Mapping[type[Any], Any] | None = getattr(auto, "_model_mapping", None)
    if found is None:
        raise lacking("transformers.AutoModel._model_mapping")
    return found


def export_patches() -> Sequence[tuple[Any, ...]]:
    """The patches that transformers itself applies for torch.export; none in older versions."""
    probe("transformers.exporters.exporter_dynamo")  # fills the table as it is imported
    rows: Sequence[tuple[Any, ...]] = probe("transformers.exporters.utils._PATCHES", {}).get(
        "dynamo", ()
    )
    return rows


def set_cache_dtype(cache: Any, dtype: Any) -> None:
    """Set what a cache of Mamba believes its dtype to be."""
    cache._dtype = dtype


def set_window(layer: Any, window: Any) -> None:
    """Set the window of a cache's sliding layer, which it also keeps as a tensor."""
    layer._sliding_window_tensor = window
