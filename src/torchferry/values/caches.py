"""Key-value caches of transformers: made from tensors, and read. One entry a class."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from torchferry.errors import UsageError
from torchferry.values.cache_layout import fill_layer

__all__ = [
    "cache_pairs",
    "make_dynamic_cache",
    "make_encoder_decoder_cache",
    "make_sliding_window_cache",
    "make_static_cache",
]

Pair = tuple[torch.Tensor, torch.Tensor]


def make_dynamic_cache(pairs: Sequence[Pair]) -> Any:
    """A ``DynamicCache`` over these tensors, not copied.

    Args:
        pairs: (key, value) of every layer, each of shape (batch, heads, length, head_size).

    Raises:
        UsageError: something else than such pairs, or transformers is not installed.
    """
    checked = _checked(pairs, "make_dynamic_cache")
    library = _library()
    cache = library.DynamicCache()
    for key, value in checked:
        layer = library.DynamicLayer()
        layer.keys, layer.values, layer.is_initialized = key, value, True
        fill_layer(layer)
        cache.layers.append(layer)
    return cache


def make_sliding_window_cache(pairs: Sequence[Pair], sliding_window: int) -> Any:
    """A ``DynamicCache`` whose layers keep the last ``sliding_window - 1`` tokens.

    Args:
        pairs: as for `make_dynamic_cache`; what does not fit the window is dropped, as if the
            tokens had come one after the other.
        sliding_window: the window of the model's configuration, in tokens, 2 or more.

    Raises:
        UsageError: as `make_dynamic_cache`, or a window below 2.
    """
    checked = _checked(pairs, "make_sliding_window_cache")
    if sliding_window < 2:
        raise UsageError(f"make_sliding_window_cache: window {sliding_window}; give 2 or more")
    library = _library()
    cache = library.DynamicCache()
    for key, value in checked:
        layer = library.DynamicSlidingWindowLayer(sliding_window)
        layer.update(key, value)
        cache.layers.append(layer)
    if checked:
        cache.layer_class_to_replicate = None
    return cache


def make_static_cache(pairs: Sequence[Pair], max_cache_len: int | None = None) -> Any:
    """A ``StaticCache`` with these tensors copied to its first positions.

    Args:
        pairs: as for `make_dynamic_cache`.
        max_cache_len: tokens the cache has room for; as many as the longest pair by default.

    Raises:
        UsageError: as `make_dynamic_cache`, or there is not room enough.
    """
    checked = _checked(pairs, "make_static_cache")
    longest = max((key.shape[2] for key, _ in checked), default=0)
    room = longest if max_cache_len is None else max_cache_len
    if room < longest:
        raise UsageError(
            f"make_static_cache: max_cache_len={room} is less than the {longest} tokens given"
        )
    library = _library()
    layers = [library.StaticLayer(max_cache_len=room) for _ in checked]
    for layer, (key, value) in zip(layers, checked, strict=True):
        positions = torch.arange(key.shape[2], device=key.device)
        layer.update(key, value, {"cache_position": positions})
    cache = library.StaticCache.__new__(library.StaticCache)
    library.Cache.__init__(cache, layers=layers)
    return cache


def make_encoder_decoder_cache(self_pairs: Sequence[Pair], cross_pairs: Sequence[Pair]) -> Any:
    """An ``EncoderDecoderCache`` of two dynamic caches.

    Args:
        self_pairs: self-attention, as for `make_dynamic_cache`; length is the decoder's.
        cross_pairs: cross-attention; length is the encoder's.

    Raises:
        UsageError: as `make_dynamic_cache`.
    """
    return _library().EncoderDecoderCache(
        make_dynamic_cache(self_pairs), make_dynamic_cache(cross_pairs)
    )


def cache_pairs(cache: Any) -> list[Pair]:
    """(key, value) of every layer that holds something.

    Args:
        cache: a cache of transformers; of an ``EncoderDecoderCache`` the self-attention comes
            first, then the cross-attention. Static layers give their whole room.

    Raises:
        UsageError: no cache.
    """
    if hasattr(cache, "self_attention_cache"):
        return [
            *cache_pairs(cache.self_attention_cache),
            *cache_pairs(cache.cross_attention_cache),
        ]
    if hasattr(cache, "layers"):
        layers = [layer for layer in cache.layers if getattr(layer, "keys", None) is not None]
        return [(layer.keys, layer.values) for layer in layers]
    if hasattr(cache, "key_cache") and hasattr(cache, "value_cache"):
        # transformers before 4.54, and models' own caches made after it
        return list(zip(cache.key_cache, cache.value_cache, strict=True))
    raise UsageError(f"cache_pairs: {type(cache).__name__} is no cache of transformers")


def _checked(pairs: Sequence[Pair], who: str) -> list[Pair]:
    found: list[Pair] = []
    if not isinstance(pairs, Sequence):
        raise UsageError(f"{who}: give a list of (key, value), not a {type(pairs).__name__}")
    for index, pair in enumerate(pairs):
        where = f"{who}: pair {index}"
        if not isinstance(pair, tuple | list) or len(pair) != 2:
            raise UsageError(f"{where} is no (key, value) but a {type(pair).__name__}")
        key, value = pair
        for name, tensor in (("key", key), ("value", value)):
            if not isinstance(tensor, torch.Tensor):
                raise UsageError(f"{where}: {name} is no tensor but a {type(tensor).__name__}")
            if tensor.ndim != 4:
                raise UsageError(
                    f"{where}: {name} has shape {tuple(tensor.shape)}, "
                    "not (batch, heads, length, head_size)"
                )
        if key.shape[:3] != value.shape[:3]:
            raise UsageError(
                f"{where}: key {tuple(key.shape)} and value {tuple(value.shape)} "
                "differ in batch, heads or length"
            )
        if found and key.shape[0] != found[0][0].shape[0]:
            raise UsageError(
                f"{where} has batch {key.shape[0]}, pair 0 has {found[0][0].shape[0]}"
            )
        found.append((key, value))
    return found


def _library() -> Any:
    try:
        from transformers import cache_utils
    except ImportError as error:
        raise UsageError(
            f"caches need transformers ({error}); install it: pip install 'torchferry[hf]'"
        ) from error
    return cache_utils
