"""Caches that keep a window of tokens, whose masks reckon from how many there have been.

The count is a Python int of the layer: a trace makes it a constant, or takes it for the length of
what is kept, which is wrong once the window is full. `count_by_mask` has it from the attention
mask, which is as long as all tokens together; the patch computes with it without a branch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch

from torchferry.capturer.patching.patch import Patch
from torchferry.seams.symbols import is_known_true

__all__ = ["PATCHES", "count_by_mask", "sliding_layers", "window_length"]

_CACHES = ("past_key_values", "cache")
_QUERIES = ("input_ids", "inputs_embeds", "decoder_input_ids")


def sliding_layers(kwargs: Mapping[str, Any]) -> list[Any]:
    """The layers with a window, and something in it, of the cache among some arguments."""
    cache = next((kwargs[name] for name in _CACHES if kwargs.get(name) is not None), None)
    cache = getattr(cache, "self_attention_cache", cache)
    return [
        layer
        for layer in getattr(cache, "layers", ())
        if hasattr(layer, "sliding_window")
        and not isinstance(getattr(layer, "cumulative_length", None), torch.Tensor)
        and getattr(layer, "keys", None) is not None
    ]


def count_by_mask(kwargs: Mapping[str, Any]) -> bool:
    """Let layers with a window count the tokens by the mask: its length less the queries'.

    Args:
        kwargs: named arguments of a decoder's ``forward``; the layers of their cache change.

    Returns:
        whether there are such layers and a mask of shape (batch, all tokens).
    """
    layers, before = sliding_layers(kwargs), _tokens_before(kwargs)
    if not layers or before is None:
        return False
    for layer in layers:
        layer.cumulative_length = before
    return True


def window_length(kwargs: Mapping[str, Any]) -> int | None:
    """How many tokens a window of the cache holds in a run, where it is given another number.

    Args:
        kwargs: as for `count_by_mask`.

    Returns:
        the number; ``None`` when every window holds the last tokens before the queries, as many
        as fit, or when there is no mask to tell.
    """
    before = _tokens_before(kwargs)
    for layer in sliding_layers(kwargs) if before is not None else ():
        length: int = min(max(before, 0), layer.sliding_window - 1)
        if _kept(layer) != length or before < 0:
            return length
    return None


def _tokens_before(kwargs: Mapping[str, Any]) -> Any:
    """Tokens before the queries, by a mask of shape (batch, all tokens); ``None`` without one."""
    mask = kwargs.get("attention_mask")
    queries = next((kwargs[name] for name in _QUERIES if kwargs.get(name) is not None), None)
    if not isinstance(mask, torch.Tensor) or mask.ndim != 2 or queries is None:
        return None
    return mask.shape[1] - queries.shape[1]


def _kept(layer: Any) -> Any:
    keys = layer.keys
    return keys.shape[-2] if isinstance(keys, torch.Tensor) and keys.ndim > 1 else 0


def _counts_otherwise(self: Any, *_: Any, **__: Any) -> bool:
    """Whether the count is more than what is kept, as far as a trace knows."""
    return not is_known_true(self.cumulative_length == _kept(self))


def _branchless(_: Callable[..., Any]) -> Callable[..., Any]:
    def get_mask_sizes(self: Any, query_length: Any) -> tuple[Any, Any]:
        """Length and offset of keys: what is kept and the queries, from where that begins."""
        if isinstance(query_length, torch.Tensor):  # their positions, before transformers 5
            query_length = query_length.shape[0]
        return _kept(self) + query_length, self.cumulative_length - _kept(self)

    return get_mask_sizes


PATCHES = (
    Patch(
        subject="transformers.cache_utils.DynamicSlidingWindowLayer.get_mask_sizes",
        why="an if on whether the window is full makes the graph right for one side of it",
        link="https://github.com/huggingface/transformers/pull/49542",
        replace=_branchless,
        silent=True,
        acts=_counts_otherwise,
        fingerprints=("ac86092c14a3", "68bb5db6d9c1"),
    ),
)
"""The one."""
