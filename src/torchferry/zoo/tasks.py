"""Inputs that fit a transformers model, made from its class, configuration and signature."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import nn

from torchferry.errors import UsageError
from torchferry.zoo.weights import seeded

__all__ = ["decoder_inputs", "encoder_inputs", "image_inputs", "input_sets"]

Inputs = dict[str, Any]

_CACHE_NAMES = ("past_key_values", "cache")
"""transformers 5.24 renamed the first to the second, in ``forward`` and in its output."""


def input_sets(model: nn.Module, *, seed: int = 0) -> list[Inputs]:
    """Return keyword arguments of ``forward`` in three different sizes.

    The first set has no two equal sizes, and none that the configuration holds, so that a
    dimension is never taken for another. The second set is padded where the task has a mask.

    Args:
        model: a transformers ``PreTrainedModel``: a decoder with a cache (which is filled by a
            run of the model itself), an encoder of text, or a model of images.
        seed: of the inputs; PyTorch's global generator is left as it is.

    Raises:
        UsageError: the model is of another kind; its inputs have to be given.
    """
    generator = seeded(seed)
    parameters = _parameters(model)
    config: Any = getattr(model, "config", None)
    if config is None or getattr(config, "is_encoder_decoder", False):
        raise _unsupported(model)
    if "input_ids" in parameters and "pixel_values" not in parameters:
        sets = _text_sets(model, generator)
    elif "pixel_values" in parameters and "input_ids" not in parameters:
        sets = _image_sets(model, generator)
    else:
        raise _unsupported(model)
    required = {name for name, p in parameters.items() if p.default is p.empty}
    if not required <= set(sets[0]):
        raise _unsupported(model)
    return sets


def decoder_inputs(
    model: nn.Module,
    *,
    batch: int,
    sequence: int,
    past: int,
    generator: torch.Generator,
    padding: Sequence[int] = (),
) -> Inputs:
    """Return inputs in the middle of a generation: some tokens are in the cache already.

    Args:
        model: a decoder that returns its cache.
        batch: number of sequences.
        sequence: new tokens.
        past: tokens in the cache, computed by a run of the model on random tokens.
        generator: where the tokens come from.
        padding: how many of the cached tokens are padding, on the left, for each sequence.

    Returns:
        ``input_ids`` (batch, sequence), ``attention_mask`` (batch, past + sequence),
        ``position_ids`` (batch, sequence) when ``forward`` has it, and ``past_key_values``.

    Raises:
        UsageError: the model does not return a cache of keys and values, or fails.
    """
    ids = _token_ids(model, (batch, past + sequence), generator)
    mask = torch.ones_like(ids)
    for row, count in enumerate(padding):
        mask[row, :count] = 0
    ids = torch.where(mask == 1, ids, _pad_token(model))
    positions = (mask.cumsum(-1) - 1).clamp(min=0)
    first = {"input_ids": ids[:, :past], "attention_mask": mask[:, :past]}
    second = {"input_ids": ids[:, past:].contiguous(), "attention_mask": mask}
    if "position_ids" in _parameters(model):
        first["position_ids"] = positions[:, :past]
        second["position_ids"] = positions[:, past:].contiguous()
    cache = _prefill(model, first)
    if cache is None:
        raise _unsupported(model)
    return {**second, "past_key_values": cache}


def encoder_inputs(
    model: nn.Module,
    *,
    batch: int,
    sequence: int,
    generator: torch.Generator,
    padding: Sequence[int] = (),
) -> Inputs:
    """Return inputs of a text encoder, each (batch, sequence) of int64.

    Args:
        model: the encoder.
        batch: number of sequences.
        sequence: tokens of each.
        generator: where the tokens come from.
        padding: how many tokens are padding, on the right, for each sequence.

    Returns:
        ``input_ids``, ``attention_mask``, and ``token_type_ids`` (two segments, where the model
        knows two) when ``forward`` has it.
    """
    ids = _token_ids(model, (batch, sequence), generator)
    mask = torch.ones_like(ids)
    for row, count in enumerate(padding):
        mask[row, sequence - count :] = 0
    inputs = {"input_ids": torch.where(mask == 1, ids, _pad_token(model)), "attention_mask": mask}
    kinds = getattr(_config(model), "type_vocab_size", 0)
    if "token_type_ids" in _parameters(model) and kinds:
        inputs["token_type_ids"] = torch.zeros_like(ids)
        inputs["token_type_ids"][:, sequence // 2 :] = min(kinds - 1, 1)
    return inputs


def image_inputs(
    model: nn.Module, batch: int, height: int, width: int, *, generator: torch.Generator
) -> Inputs:
    """Return ``pixel_values`` (batch, channels, height, width), normally distributed."""
    channels = getattr(_config(model), "num_channels", 3)
    return {"pixel_values": torch.randn(batch, channels, height, width, generator=generator)}


def _text_sets(model: nn.Module, generator: torch.Generator) -> list[Inputs]:
    probe = encoder_inputs(model, batch=1, sequence=2, generator=generator)
    probe.pop("token_type_ids", None)
    has_cache = _prefill(model, probe) is not None
    batch, sequence, past = _distinct_sizes(model)
    if not has_cache:
        return [
            encoder_inputs(model, batch=batch, sequence=sequence + past // 2, generator=generator),
            encoder_inputs(
                model, batch=batch + 1, sequence=past, generator=generator, padding=(0, 2)
            ),
            encoder_inputs(model, batch=1, sequence=sequence, generator=generator),
        ]
    return [
        decoder_inputs(model, batch=batch, sequence=sequence, past=past, generator=generator),
        decoder_inputs(
            model,
            batch=batch + 1,
            sequence=sequence + 2,
            past=past // 2 + 2,
            generator=generator,
            padding=(0, 1, 3),
        ),
        decoder_inputs(model, batch=1, sequence=1, past=past // 3, generator=generator),
    ]


def _image_sets(model: nn.Module, generator: torch.Generator) -> list[Inputs]:
    size = getattr(_config(model), "image_size", None)
    if size is None:  # convolutions take any size; unequal sides tell height from width
        sizes = [(2, 96, 128), (5, 128, 64), (1, 64, 160)]
    else:
        height, width = (size, size) if isinstance(size, int) else tuple(size)
        sizes = [(batch, height, width) for batch in (2, 5, 1)]
    return [image_inputs(model, *shape, generator=generator) for shape in sizes]


def _distinct_sizes(model: nn.Module) -> tuple[int, int, int]:
    """Batch, sequence and cache length that differ from each other and from the model's sizes."""
    config = _config(model)
    fixed = {
        value
        for key, value in config.to_dict().items()
        if isinstance(value, int) and not key.endswith("_id")
    }
    batch = _first(range(2, 100), fixed)
    sequence = _first(range(3, 100), fixed | {batch})
    # RoBERTa counts positions from the number of its padding token on
    longest = (getattr(config, "max_position_embeddings", None) or 1024) - _pad_token(model) - 1
    most = min(30, longest - sequence - 2)
    past = _first(range(most, 2, -1), fixed | {batch, sequence} | {f - sequence for f in fixed})
    return batch, sequence, past


def _first(candidates: Iterable[int], taken: set[int]) -> int:
    free = next((size for size in candidates if size not in taken), None)
    if free is None:
        raise UsageError(
            "the model takes too few positions for inputs of different sizes; "
            "give them with --inputs FILE.py:function"
        )
    return free


def _token_ids(
    model: nn.Module, shape: tuple[int, int], generator: torch.Generator
) -> torch.Tensor:
    """Random tokens, none of them padding: RoBERTa would mask it by itself."""
    ids = torch.randint(0, _config(model).vocab_size - 1, shape, generator=generator)
    return ids + (ids >= _pad_token(model)) if _config(model).pad_token_id is not None else ids


def _pad_token(model: nn.Module) -> int:
    token = getattr(_config(model), "pad_token_id", None)
    return token if isinstance(token, int) and token >= 0 else 0


def _prefill(model: nn.Module, inputs: Inputs) -> Any:
    """Run the model and return its cache of keys and values, or None when it returns none."""
    was_training = model.training
    try:
        with torch.no_grad():
            outputs = model.eval()(**inputs)
    except (
        ArithmeticError,
        AttributeError,
        LookupError,
        RuntimeError,
        TypeError,
        ValueError,
    ) as e:
        message = f"{type(model).__name__} does not run on {', '.join(inputs)}: {e}"
        raise UsageError(f"{message}\nGive inputs with --inputs FILE.py:function") from e
    finally:
        model.train(was_training)
    if not isinstance(outputs, Mapping):
        return None
    state = {name for name in outputs if "cache" in name or name in ("past_key_values", "state")}
    if not state:
        return None
    cache = next((outputs[name] for name in _CACHE_NAMES if name in state), None)
    layers = getattr(cache, "layers", ())
    if not layers or any(getattr(layer, "keys", None) is None for layer in layers):
        raise _unsupported(model)  # Mamba and its like: a state, not keys and values
    return cache


def _parameters(model: nn.Module) -> Mapping[str, inspect.Parameter]:
    """Named parameters of ``forward``, without ``*args`` and ``**kwargs``."""
    parameters = inspect.signature(model.forward).parameters
    variadic = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return {name: p for name, p in parameters.items() if p.kind not in variadic}


def _config(model: nn.Module) -> Any:
    """The configuration, of the text decoder where a model has several parts."""
    config: Any = model.config
    return config.get_text_config(decoder=True) if hasattr(config, "get_text_config") else config


def _unsupported(model: nn.Module) -> UsageError:
    return UsageError(
        f"no inputs are known for {type(model).__name__}: its forward takes "
        f"({', '.join(_parameters(model))}).\n"
        "Give them with --inputs FILE.py:function, a function that returns two or more input sets"
    )
