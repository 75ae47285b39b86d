"""Caches of transformers: made from tensors, and read. One entry a class."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from torchferry.errors import UsageError
from torchferry.seams.huggingface import set_cache_dtype
from torchferry.values.cache_layout import fill_layer
from torchferry.values.state_layout import STATES, states_of

__all__ = [
    "CacheTensors",
    "cache_pairs",
    "cache_tensors",
    "make_dynamic_cache",
    "make_encoder_decoder_cache",
    "make_hybrid_cache",
    "make_mamba_cache",
    "make_sliding_window_cache",
    "make_static_cache",
]

Pair = tuple[torch.Tensor, torch.Tensor]

_FULL, _LINEAR = "full_attention", "linear_attention"
_SLIDING = ("sliding_attention", "chunked_attention")


@dataclass(frozen=True)
class CacheTensors:
    """What a cache of any class holds: one entry a layer, ``None`` for what a layer has not.

    Attributes:
        key_cache: (batch, heads, length, head_size); static layers give their whole room.
        value_cache: as keys.
        conv_states: of linear attention and state space layers: (batch, channels, kernel).
        recurrent_states: of the same; the shape is the model's own.
    """

    key_cache: list[Any]
    value_cache: list[Any]
    conv_states: list[Any]
    recurrent_states: list[Any]


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
        layer.keys, layer.values = key, value
        if "is_initialized" in vars(layer):  # from transformers 4.57 on
            layer.is_initialized = True
        fill_layer(layer)
        cache.layers.append(layer)
    return cache


def make_sliding_window_cache(
    pairs: Sequence[Pair], sliding_window: int, seen: int | None = None
) -> Any:
    """A ``DynamicCache`` whose layers keep the last ``sliding_window - 1`` tokens.

    Args:
        pairs: as for `make_dynamic_cache`; what does not fit the window is dropped, as if the
            tokens had come one after the other.
        sliding_window: the window of the model's configuration, in tokens, 2 or more.
        seen: how many tokens there were so far, those included that the pairs no longer hold;
            as many as the pairs have by default. It gives the positions of the next tokens.

    Raises:
        UsageError: as `make_dynamic_cache`, a window below 2, or fewer tokens seen than given.
    """
    who = "make_sliding_window_cache"
    checked = _checked(pairs, who)
    _check_count(who, "sliding_window", sliding_window, least=2)
    library = _library()
    cache = library.DynamicCache()
    for key, value in checked:
        layer = _sliding_layer(library, key, value, sliding_window)
        if seen is not None:
            _set_seen(layer, key.shape[2], seen, who)
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
    if max_cache_len is not None:
        _check_count("make_static_cache", "max_cache_len", max_cache_len, least=0)
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
        UsageError: as `make_dynamic_cache`, or the two differ in the batch.
    """
    who = "make_encoder_decoder_cache"
    checked = _checked(self_pairs, who), _checked(cross_pairs, who)
    batches = [pairs[0][0].shape[0] for pairs in checked if pairs]
    if len({*batches}) > 1:
        raise UsageError(f"{who}: self_pairs have batch {batches[0]}, cross_pairs {batches[1]}")
    return _library().EncoderDecoderCache(*map(make_dynamic_cache, checked))


def make_hybrid_cache(
    pairs: Sequence[Pair], layer_types: Sequence[str], sliding_window: int | None = None
) -> Any:
    """A ``DynamicCache`` whose layers are of different kinds.

    Args:
        pairs: one a layer: (key, value) as for `make_dynamic_cache` or, of a layer of linear
            attention, (conv_state, recurrent_state) as for `make_mamba_cache`.
        layer_types: as the model's configuration has them: ``full_attention``,
            ``sliding_attention`` (or ``chunked_attention``), ``linear_attention``.
        sliding_window: of the sliding layers, in tokens, 2 or more.

    Raises:
        UsageError: something else than such pairs and types, or transformers is not installed or
            has no layers of linear attention (before 5.5).
    """
    who = "make_hybrid_cache"
    _check_sequence(pairs, who, "pairs")
    _check_sequence(layer_types, who, "layer_types")
    if len(pairs) != len(layer_types):
        raise UsageError(f"{who}: {len(pairs)} pairs and {len(layer_types)} layer_types")
    unknown = sorted({*layer_types} - {_FULL, _LINEAR, *_SLIDING})
    if unknown:
        known = ", ".join((_FULL, *_SLIDING, _LINEAR))
        raise UsageError(f"{who}: no layer type is called {unknown[0]!r}; give {known}")
    if {*layer_types} & {*_SLIDING}:
        _check_count(who, "sliding_window", sliding_window, least=2)
    kinds = list(zip(pairs, layer_types, strict=True))
    attention = iter(_checked([pair for pair, kind in kinds if kind != _LINEAR], who))
    states = iter(_checked_states([pair for pair, kind in kinds if kind == _LINEAR], who))
    library = _library()
    cache = library.DynamicCache()
    for kind in layer_types:
        if kind == _LINEAR:
            cache.layers.append(_linear_layer(library, *next(states)))
        elif kind == _FULL:
            cache.layers += make_dynamic_cache([next(attention)]).layers
        else:
            cache.layers.append(_sliding_layer(library, *next(attention), sliding_window))
    if {*layer_types} - {_FULL}:
        cache.layer_class_to_replicate = None
    return cache


def make_mamba_cache(states: Sequence[Pair]) -> Any:
    """The cache of a Mamba model over copies of these tensors.

    Args:
        states: (conv_state, recurrent_state) of every layer: (batch, channels, kernel) and
            (batch, channels, state_size).

    Returns:
        a ``DynamicCache`` of linear attention layers, or a ``MambaCache`` where transformers has
        no such layers (before 5.5).

    Raises:
        UsageError: something else than such pairs, or transformers is not installed.
    """
    checked = _checked_states(states, "make_mamba_cache")
    library = _library()
    if hasattr(library, "LinearAttentionLayer"):
        return make_hybrid_cache(checked, [_LINEAR] * len(checked))
    from transformers.models.mamba.modeling_mamba import MambaCache

    cache = MambaCache.__new__(MambaCache)
    cache.conv_states = [conv.clone() for conv, _ in checked]
    cache.ssm_states = [recurrent.clone() for _, recurrent in checked]
    if checked:
        conv, recurrent = checked[0]
        cache.max_batch_size, cache.intermediate_size, cache.conv_kernel_size = conv.shape
        cache.ssm_state_size = recurrent.shape[-1]
        set_cache_dtype(cache, conv.dtype)
    return cache


def cache_tensors(cache: Any) -> CacheTensors:
    """What a cache holds, layer by layer, whatever its class and whatever the version.

    Args:
        cache: a cache of transformers; of an ``EncoderDecoderCache`` the layers of the
            self-attention come first, then those of the cross-attention.

    Raises:
        UsageError: no cache.
    """
    if hasattr(cache, "self_attention_cache"):
        one, other = map(cache_tensors, (cache.self_attention_cache, cache.cross_attention_cache))
        return CacheTensors(*(getattr(one, n) + getattr(other, n) for n in STATES))
    if hasattr(cache, "layers"):
        names = ("keys", "values", "conv_states", "recurrent_states")
        return CacheTensors(*(
            [_single(getattr(layer, name, None)) for layer in cache.layers] for name in names
        ))  # fmt: skip
    if any(hasattr(cache, name) for name in STATES):
        return CacheTensors(**states_of(cache))
    raise UsageError(f"{type(cache).__name__} is no cache of transformers")


def cache_pairs(cache: Any) -> list[Pair]:
    """(key, value) of every layer that holds something.

    Args:
        cache: as for `cache_tensors`.

    Raises:
        UsageError: no cache.
    """
    found = cache_tensors(cache)
    pairs = zip(found.key_cache, found.value_cache, strict=True)
    return [(key, value) for key, value in pairs if key is not None]


def _single(states: Any) -> Any:
    """The states of a layer that has one of each are a dictionary of one."""
    if isinstance(states, dict):
        values = tuple(states.values())
        return values[0] if len(values) == 1 else values
    return states


def _sliding_layer(library: Any, key: torch.Tensor, value: torch.Tensor, window: Any) -> Any:
    layer = library.DynamicSlidingWindowLayer(sliding_window=window)
    layer.update(key, value)
    return layer


def _set_seen(layer: Any, given: int, seen: int, who: str) -> None:
    _check_count(who, "seen", seen, least=given)
    room = layer.sliding_window - 1
    if seen > given and given < room:
        raise UsageError(
            f"{who}: {given} tokens are given of {seen} seen, but the window keeps {room}"
        )
    layer.cumulative_length = seen


def _check_count(who: str, name: str, value: Any, least: int) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise UsageError(f"{who}: {name} is {value!r}; give a whole number of {least} or more")


def _linear_layer(library: Any, conv: torch.Tensor, recurrent: torch.Tensor) -> Any:
    if not hasattr(library, "LinearAttentionLayer"):
        raise UsageError(
            "this transformers has no layers of linear attention: install 5.5 or later, or use "
            "the cache class of the model"
        )
    layer = library.LinearAttentionLayer()
    layer.update_conv_state(conv)
    layer.update_recurrent_state(recurrent)
    return layer


def _checked_states(states: Sequence[Any], who: str) -> list[Pair]:
    found: list[Pair] = []
    _check_sequence(states, who, "(conv_state, recurrent_state)")
    for index, pair in enumerate(states):
        where = f"{who}: pair {index}"
        if not isinstance(pair, tuple | list) or len(pair) != 2:
            raise UsageError(
                f"{where} is no (conv_state, recurrent_state) but a {type(pair).__name__}"
            )
        for name, tensor in zip(("conv_state", "recurrent_state"), pair, strict=True):
            if not isinstance(tensor, torch.Tensor) or tensor.ndim < 3:
                what = tuple(tensor.shape) if isinstance(tensor, torch.Tensor) else type(tensor)
                raise UsageError(f"{where}: {name} is no tensor of 3 dimensions or more: {what}")
        conv, recurrent = pair
        if conv.shape[0] != recurrent.shape[0]:
            raise UsageError(f"{where}: {conv.shape[0]} and {recurrent.shape[0]} in the batch")
        found.append((conv, recurrent))
    return found


def _check_sequence(values: Any, who: str, of: str) -> None:
    if not isinstance(values, Sequence) or isinstance(values, str):
        raise UsageError(f"{who}: give a list of {of}, not a {type(values).__name__}")


def _checked(pairs: Sequence[Pair], who: str) -> list[Pair]:
    found: list[Pair] = []
    _check_sequence(pairs, who, "(key, value)")
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
