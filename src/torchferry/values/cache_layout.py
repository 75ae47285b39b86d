"""How key-value caches of transformers are taken apart and put together.

A cache flattens into ``{"key_cache": [k0, k1, ...], "value_cache": [v0, v1, ...]}``, one entry a
layer that holds something, and further tensors of its layers by attribute name
(``cumulative_length`` of static layers, ``conv_states`` of linear attention ...). What else a
layer knows is context: two caches with equal contexts may stand for each other in an exported
program. Putting together sets attributes and computes nothing, so nothing of it is traced.

The context leaves out what follows from the tensors: dtype, device, the sizes that static layers
note down, and how a `DynamicCache` was made (with or without a configuration). A sliding layer
counts the tokens it has seen in a Python int. While it holds them all the count is the length of
its keys, which may be dynamic. Once it has dropped tokens the count is context: a program
exported for one count refuses a cache with another. In a cache returned by a traced program the
count may be a symbol that is not known to be the length; it is then the length if the window is
not full, and otherwise ``None``: reading the cache works, continuing with it raises.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Hashable
from typing import Any

import torch

from torchferry.errors import UsageError
from torchferry.seams.huggingface import set_window
from torchferry.seams.pytorch import without_modes
from torchferry.values.kinds import Parts, class_name, register

__all__ = ["fill_layer", "split_attributes", "thaw"]

_MODULE = "transformers.cache_utils"
_CHILD_NAMES = {"keys": "key_cache", "values": "value_cache"}

# Set again from the tensors of a layer when it is put together; see fill_layer.
_DERIVED = frozenset(
    ("device", "dtype", "_sliding_window_tensor", "batch_size", "max_batch_size")
) | frozenset(("num_heads", "k_head_dim", "v_head_dim", "head_dim"))

# Keys and values have columns of their own; the rest is no data, or the count of a layer.
_NOT_TOLD = _DERIVED | {"keys", "values", "cumulative_length", "is_initialized"}

# The count of a sliding layer, where it is not an int of its own.
_KEPT, _UNKNOWN = "kept", "unknown"


def _get(layer: Any, name: str) -> Any:
    return getattr(layer, name, None)


def _is_plain(value: Any) -> bool:
    """Whether a value of a layer is bookkeeping rather than data."""
    if isinstance(value, dict):
        return all(_is_plain(item) for item in value.values())
    if isinstance(value, tuple | list):
        return all(_is_plain(item) for item in value)
    return value is None or isinstance(
        value, bool | int | float | str | torch.dtype | torch.device
    )


def _freeze(value: Any) -> Any:
    if isinstance(value, dict):
        return ("dict", tuple((key, _freeze(item)) for key, item in value.items()))
    if isinstance(value, tuple | list):
        return (type(value).__name__, tuple(_freeze(item) for item in value))
    if isinstance(value, torch.device):
        return ("device", str(value))
    return value


def thaw(value: Any) -> Any:
    """A setting as it was before `split_attributes` made it hashable."""
    if not isinstance(value, tuple):
        return value
    kind, items = value
    if kind == "dict":
        return {key: thaw(item) for key, item in items}
    if kind == "device":
        return torch.device(items)
    thawed = [thaw(item) for item in items]
    return thawed if kind == "list" else tuple(thawed)


def split_attributes(owner: Any, without: frozenset[str]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Attributes of a layer or a cache that are data, by name, and the rest, made hashable.

    Args:
        owner: the layer or the cache.
        without: attributes to leave out.
    """
    data, rest = {}, {}
    for name, value in sorted(vars(owner).items()):
        if name in without:
            continue
        if name in _CHILD_NAMES and value is not None:
            data[name] = value
        elif name == "cumulative_length" and _get(owner, "keys") is not None and _slides(owner):
            rest[name] = _count(owner)
        elif _is_plain(value):
            rest[name] = _freeze(value)
        else:
            data[name] = value
    return data, rest


def _slides(layer: Any) -> bool:
    """Whether the keys of a layer grow up to its window, as those of static ones do not.

    The count does not tell: within ``torch.jit.trace`` sizes, and so the sum of them, are tensors.
    """
    return hasattr(layer, "sliding_window") and not hasattr(layer, "max_cache_len")


def _kept(layer: Any) -> Any:
    """How many tokens the keys of a layer are, maybe a symbol; None when they are no tensor."""
    if not isinstance(layer.keys, torch.Tensor):
        return None
    return layer.keys.shape[-2] if layer.keys.ndim > 1 else 0


def _count(layer: Any) -> Hashable:
    count, kept = layer.cumulative_length, _kept(layer)
    if count is None or kept is None:
        return _UNKNOWN
    if isinstance(count, torch.SymInt) or isinstance(kept, torch.SymInt):
        return _KEPT if _surely(count == kept) else _UNKNOWN
    return _KEPT if int(count) == int(kept) else int(count)


def fill_layer(layer: Any) -> None:
    """Set what follows from the tensors and the settings of a layer."""
    data = vars(layer)
    tensors = [data.get("keys"), data.get("values")]
    for name in ("conv_states", "recurrent_states"):
        states = data.get(name)
        tensors += list(states.values()) if isinstance(states, dict) else [states]
    first = next((tensor for tensor in tensors if isinstance(tensor, torch.Tensor)), None)
    if first is not None:
        layer.dtype, layer.device = first.dtype, first.device
    elif hasattr(layer, "conv_states"):
        layer.dtype = layer.device = None
    if "max_cache_len" in data and isinstance(data.get("keys"), torch.Tensor):
        layer.batch_size, layer.num_heads = layer.max_batch_size, _ = layer.keys.shape[:2]
        layer.k_head_dim = layer.head_dim = layer.keys.shape[-1]
        layer.v_head_dim = layer.values.shape[-1]
    elif "sliding_window" in data and "max_cache_len" not in data:
        with without_modes():  # or it would become a constant of the traced graph
            window = torch.tensor(
                layer.sliding_window, dtype=torch.long, device=_get(layer, "device")
            )
        set_window(layer, window)
    if data.get("cumulative_length") in (_KEPT, _UNKNOWN):
        layer.cumulative_length = _derive_count(layer, layer.cumulative_length)


def _derive_count(layer: Any, how: str) -> Any:
    kept = _kept(layer)
    if how == _KEPT or kept is None:
        return kept
    return kept if _surely(kept < layer.sliding_window - 1) else None


def _surely(condition: Any) -> bool:
    """Whether a condition on sizes holds for certain; a symbolic one is not guarded on."""
    if isinstance(condition, bool | torch.Tensor):  # a tensor within torch.jit.trace
        return bool(condition)
    from torchferry.seams.symbols import is_known_true

    return is_known_true(condition)


def _flatten_cache(cache: Any) -> Parts:
    columns: dict[Hashable, Any] = {"key_cache": [], "value_cache": []}
    layers = []
    for layer in cache.layers:
        data, rest = split_attributes(layer, _DERIVED)
        for name, value in data.items():
            columns.setdefault(_CHILD_NAMES.get(name, name), []).append(value)
        layers.append((class_name(type(layer)), tuple(rest.items()), tuple(data)))
    own, settings = split_attributes(cache, frozenset(("layers", "layer_class_to_replicate")))
    columns.update(own)
    return columns, (tuple(layers), tuple(settings.items()))


def _unflatten_cache(cls: Any, children: dict[Hashable, Any], context: Any) -> Any:
    layers, settings = context
    columns = {name: iter(children[name]) for name in ("key_cache", "value_cache")}
    cache = cls.__new__(cls)
    cache.layers = []
    for name, rest, names in layers:
        layer = _new_layer(name)
        vars(layer).update({key: thaw(value) for key, value in rest})
        # An absent tensor is None among ``rest``, so every attribute is set.
        for attribute in names:
            child = _CHILD_NAMES.get(attribute, attribute)
            column = columns.setdefault(child, iter(children.get(child, ())))
            setattr(layer, attribute, next(column))
        fill_layer(layer)
        cache.layers.append(layer)
    vars(cache).update({name: thaw(value) for name, value in settings})
    vars(cache).update({str(k): v for k, v in children.items() if k not in columns})
    # As DynamicCache() has it: it grows a layer when asked for one more.
    dynamic = f"{_MODULE}:DynamicLayer"
    grows = "Dynamic" in cls.__name__ and all(name == dynamic for name, _, _ in layers)
    cache.layer_class_to_replicate = _class_of(dynamic) if grows else None
    return cache


def _new_layer(name: str) -> Any:
    cls: Any = _class_of(name)
    return cls.__new__(cls)


def _class_of(name: str) -> type[Any]:
    module, _, qualname = name.partition(":")
    cls = getattr(sys.modules.get(module), qualname, None)
    bases = getattr(cls, "__mro__", ())
    if not isinstance(cls, type) or all(base.__module__ != _MODULE for base in bases):
        raise UsageError(f"{name} is no layer of a cache of transformers")
    return cls


def _flatten_encoder_decoder(cache: Any) -> Parts:
    own, rest = split_attributes(cache, frozenset(("layers", "layer_class_to_replicate")))
    names = ("self_attention_cache", "cross_attention_cache")
    children: dict[Hashable, Any] = {name: own.pop(name) for name in names}
    children.update(own)
    return children, tuple(rest.items())


def _unflatten_encoder_decoder(cls: Any, children: dict[Hashable, Any], rest: Any) -> Any:
    cache = cls.__new__(cls)
    vars(cache).update({str(name): child for name, child in children.items()})
    vars(cache).update({name: thaw(value) for name, value in rest})
    return cache


def _describe_cache(cache: Any, render: Callable[[Any], str]) -> str:
    full = [layer for layer in cache.layers if getattr(layer, "keys", None) is not None]
    others: dict[str, list[Any]] = {}
    for layer in cache.layers:
        for name, value in vars(layer).items():
            if name not in _NOT_TOLD and not _is_plain(value):
                others.setdefault(name, []).append(value)
    columns = dict(sorted(others.items()))
    if full or not columns:
        keys, values = [layer.keys for layer in full], [layer.values for layer in full]
        columns = {"key_cache": keys, "value_cache": values} | columns
    inner = ", ".join([f"{name}={render(column)}" for name, column in columns.items()])
    return f"{type(cache).__name__}({inner})"


def _describe_encoder_decoder(cache: Any, render: Callable[[Any], str]) -> str:
    names = ("self_attention_cache", "cross_attention_cache")
    inner = ", ".join(f"{name}={render(getattr(cache, name))}" for name in names)
    return f"{type(cache).__name__}({inner})"


register(
    f"{_MODULE}:Cache",
    flatten=_flatten_cache,
    unflatten=_unflatten_cache,
    describe=_describe_cache,
)
register(
    f"{_MODULE}:EncoderDecoderCache",
    flatten=_flatten_encoder_decoder,
    unflatten=_unflatten_encoder_decoder,
    describe=_describe_encoder_decoder,
)
