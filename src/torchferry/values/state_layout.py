"""How the caches of state space models are taken apart that are classes of their own.

Mamba and its relatives keep a state of a fixed size a layer in place of keys and values, some
beside them. From transformers 5.5 on such states are layers of a ``DynamicCache``
(`torchferry.values.cache_layout`); the classes here are those of the versions before, and of
models that have not moved. Each is a handful of lists, dictionaries or stacked tensors, one entry
a layer; what else it knows is context.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any

import torch

from torchferry.values.cache_layout import split_attributes, thaw
from torchferry.values.kinds import Parts, register

__all__ = ["STATES", "states_of"]

STATES = ("key_cache", "value_cache", "conv_states", "recurrent_states")
"""What a cache may keep of a layer. Some call the last one ``ssm_states`` or ``conv_cache``."""

_OTHER_NAMES = {"ssm_states": "recurrent_states", "conv_cache": "conv_states"}
_DATA = (*STATES, *_OTHER_NAMES)

# Model and class, as transformers 4.56 to 5.24 have them.
_CLASSES = (
    ("mamba", "MambaCache"),
    ("mamba2", "Mamba2Cache"),
    ("falcon_mamba", "FalconMambaCache"),
    ("jamba", "HybridMambaAttentionDynamicCache"),
    ("bamba", "HybridMambaAttentionDynamicCache"),
    ("granitemoehybrid", "HybridMambaAttentionDynamicCache"),
    ("falcon_h1", "FalconHybridMambaAttentionDynamicCache"),
    ("zamba", "ZambaHybridDynamicCache"),
    ("zamba2", "Zamba2HybridDynamicCache"),
    ("qwen3_next", "Qwen3NextDynamicCache"),
    ("olmo_hybrid", "OlmoHybridDynamicCache"),
    ("lfm2", "Lfm2HybridConvCache"),
    ("lfm2_moe", "Lfm2MoeHybridConvCache"),
)


def states_of(cache: Any) -> dict[str, list[Any]]:
    """What a cache keeps, by the names of `STATES`: one entry a layer, ``None`` for nothing.

    Args:
        cache: of one of these classes, or any object with such attributes.
    """
    found = {
        _OTHER_NAMES.get(n, n): _layers(getattr(cache, n)) for n in _DATA if hasattr(cache, n)
    }
    count = max(map(len, found.values()), default=0)
    return {name: found.get(name) or [None] * count for name in STATES}


def _layers(states: Any) -> list[Any]:
    """One entry a layer; a tensor without elements stands for a layer of another kind."""
    entries = list(states.values()) if isinstance(states, dict) else list(states)
    empty = [isinstance(entry, torch.Tensor) and entry.ndim <= 2 and not entry.numel()
             for entry in entries]  # fmt: skip
    return [None if none else entry for none, entry in zip(empty, entries, strict=True)]


def _flatten(cache: Any) -> Parts:
    data, rest = split_attributes(cache, frozenset(_DATA))
    states: dict[Hashable, Any] = {n: getattr(cache, n) for n in _DATA if hasattr(cache, n)}
    return states | data, tuple(rest.items())


def _unflatten(cls: Any, children: dict[Hashable, Any], rest: Any) -> Any:
    cache = cls.__new__(cls)
    vars(cache).update({str(name): child for name, child in children.items()})
    vars(cache).update({name: thaw(value) for name, value in rest})
    return cache


def _describe(cache: Any, render: Callable[[Any], str]) -> str:
    named = [(name, getattr(cache, name)) for name in _DATA if hasattr(cache, name)]
    inner = ", ".join(f"{name}={render(states)}" for name, states in named)
    return f"{type(cache).__name__}({inner})"


for _model, _class in _CLASSES:
    register(
        f"transformers.models.{_model}.modeling_{_model}:{_class}",
        flatten=_flatten,
        unflatten=_unflatten,
        describe=_describe,
    )
