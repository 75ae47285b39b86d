"""What people call the dimensions: the names optimum and Hugging Face's tools expect."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence

from torchferry.values.flatten import Path, path_text
from torchferry.values.step import LIFTED

__all__ = [
    "ALIASES",
    "cache_name",
    "conventional_name",
    "in_cache",
    "input_name",
    "made_name",
    "mixed_names",
    "output_name",
    "pick_name",
    "unaliased",
]

_TEXT = {0: "batch_size", 1: "sequence_length"}
_DECODER = {0: "batch_size", 1: "decoder_sequence_length"}
_ENCODER = {0: "batch_size", 1: "encoder_sequence_length"}
_IMAGE = {0: "batch_size", 1: "num_channels", 2: "height", 3: "width"}

_BY_ARGUMENT: dict[str, dict[int, str]] = {
    "input_ids": _TEXT,
    "inputs_embeds": _TEXT,
    "attention_mask": _TEXT,
    "position_ids": _TEXT,
    "token_type_ids": _TEXT,
    "cache_position": {0: "sequence_length"},
    "decoder_input_ids": _DECODER,
    "decoder_attention_mask": _DECODER,
    "encoder_hidden_states": _ENCODER,
    "encoder_attention_mask": _ENCODER,
    "encoder_outputs": _ENCODER,
    "pixel_values": _IMAGE,
    "input_features": {0: "batch_size", 1: "feature_size", 2: "encoder_sequence_length"},
    "input_values": {0: "batch_size", 1: "sequence_length"},
}


def conventional_name(path: Path, axis: int, rank: int) -> str | None:
    """The usual name of an axis, or ``None`` where there is no convention.

    Args:
        path: where the tensor stands in the call: ``("past_key_values", "key_cache", 0)``.
        axis: from 0 to ``rank - 1``.
        rank: number of dimensions; keys and values of a cache have rank 4, and their length
            is axis 2; 0 for an integer, which has no conventional name.

    >>> conventional_name(("past_key_values", "key_cache", 0), 2, 4)
    'past_sequence_length'
    >>> conventional_name(("weights",), 1, 2)
    """
    if rank == 0 or path[0] == LIFTED:
        return None
    if in_cache(path):
        length = "encoder_sequence_length" if "cross_attention_cache" in path else None
        return {0: "batch_size", rank - 2: length or "past_sequence_length"}.get(axis)
    known = _BY_ARGUMENT.get(str(path[0]))
    if known is not None:
        return known.get(axis)
    return "batch_size" if axis == 0 else None


def pick_name(places: Sequence[tuple[Path, int, int]], taken: Collection[str]) -> str:
    """A name for a size: the first usual one that is free, or one made of the path.

    Args:
        places: ``(path, axis, rank)`` of every axis that has this size; of an integer that is
            always this size the rank is 0.
        taken: names of other dimensions.

    >>> pick_name([(("x",), 0, 2)], ()), pick_name([(("x",), 0, 2)], ["batch_size"])
    ('batch_size', 'x_dim_0')
    """
    candidates = [conventional_name(unaliased(path), axis, rank) for path, axis, rank in places]
    path, axis, rank = places[0]
    own = made_name((*path, axis)) if rank else re.sub(r"\W", "_", input_name(path))
    numbered = [f"{own}_{number}" for number in range(2, len(taken) + 3)]
    return next(n for n in [*candidates, own, *numbered] if n is not None and n not in taken)


def made_name(path: Path) -> str:
    """A name for the axis, or the integer, at a path.

    >>> made_name(("past_key_values", "key_cache", 0, 2)), made_name((1, 0)), made_name(("n",))
    ('past_key_values_0_key_dim_2', 'args_1_dim_0', 'n')
    """
    *place, last = path or ("size",)
    is_axis_of = bool(place) and isinstance(last, int)
    name = re.sub(r"\W", "_", input_name(tuple(place) if is_axis_of else path or (last,)))
    return f"{name}_dim_{last}" if is_axis_of else name


def in_cache(path: Path) -> bool:
    """Whether a path leads to a key or value of a cache.

    >>> in_cache(("past_key_values", "key_cache", 0)), in_cache(("input_ids",))
    (True, False)
    """
    return "key_cache" in path or "value_cache" in path


def input_name(path: Path) -> str:
    """What the graph input at a path is called: as optimum and genai expect it.

    >>> input_name(("cache", "key_cache", 0)), input_name(("encoder", "mask")), input_name((1,))
    ('past_key_values.0.key', 'encoder.mask', 'args.1')
    """
    if path[0] == LIFTED:
        return path_text(("state", *path[1:]))
    path = unaliased(path)
    path = ("args", *path) if isinstance(path[0], int) else path
    return cache_name(str(path[0]), path) or path_text(path)


def output_name(path: Path) -> str:
    """What the graph output at a path is called: as optimum and genai expect it.

    >>> output_name(("past_key_values", "key_cache", 0)), output_name((1,)), output_name(())
    ('present.0.key', 'output_1', 'output')
    """
    if not path:
        return "output"
    name = cache_name("present", path)
    nameless = isinstance(path[0], int) or not path[0]
    return name or ("output_" if nameless else "") + path_text(path)


def cache_name(prefix: str, path: Path) -> str | None:
    """``prefix.{layer}.{key,value}`` of a cache's tensor; ``None`` for another.

    The two parts of an encoder-decoder cache are told apart as optimum does:
    ``present.0.decoder.key``.
    """
    for kind in ("key", "value"):
        if f"{kind}_cache" in path:
            part = (
                "encoder."
                if "cross_attention_cache" in path
                else "decoder."
                if "self_attention_cache" in path
                else ""
            )
            return f"{prefix}.{path[-1]}.{part}{kind}"
    return None


ALIASES = ("past_key_values", "cache")
"""What forward called its cache before transformers 5.24, and since; both stay in use."""


def mixed_names(given: Collection[str], known: Collection[str]) -> dict[str, str]:
    """What to call arguments that calls gave under both names: one that ``forward`` has.

    >>> mixed_names(["x", "cache", "past_key_values"], ["x", "cache", "kwargs"])
    {'past_key_values': 'cache'}
    """
    old, new = ALIASES
    if old not in given or new not in given or (old in known) == (new in known):
        return {}
    return {old: new} if new in known else {new: old}


def unaliased(path: Path) -> Path:
    """The path under one name for arguments that transformers' releases call differently.

    It is the old of `ALIASES`, which users and exported files keep.
    """
    old, new = ALIASES
    return (old, *path[1:]) if path and path[0] == new else path
