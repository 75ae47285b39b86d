"""Tokens: of encoders, and of decoders before and in the middle of a generation."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import nn

from torchferry.errors import UsageError

__all__ = [
    "CACHE_NAMES",
    "Inputs",
    "cache_name",
    "decoder_inputs",
    "encoder_inputs",
    "is_recurrent",
    "pad_token",
    "parameters_of",
    "run_quietly",
    "text_config",
    "token_ids",
    "unsupported",
]

Inputs = dict[str, Any]
"""Named arguments of ``forward``."""

CACHE_NAMES = ("past_key_values", "cache", "cache_params")
"""transformers 5.24 renamed the first to the second, in ``forward`` and in its output; Mamba had
the third before."""


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

    A model that keeps a state (Mamba and its like) takes one token at a time; when it keeps
    nothing else, there is no mask either, for the state was made without the padding.

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
        UsageError: the model does not return a cache, or fails.
    """
    ids = token_ids(model, (batch, past + sequence), generator)
    mask = torch.ones_like(ids)
    for row, count in enumerate(padding):
        mask[row, :count] = 0
    ids = torch.where(mask == 1, ids, pad_token(model))
    first = {"input_ids": ids[:, :past], "attention_mask": mask[:, :past]}
    positions = (mask.cumsum(-1) - 1).clamp(min=0)
    if "position_ids" in parameters_of(model):
        first["position_ids"] = positions[:, :past]
    cache = run_quietly(model, first)[1]
    if cache is None:
        raise unsupported(model)
    recurrent = is_recurrent(cache)
    new = slice(past, past + 1 if recurrent else None)
    second = {"input_ids": ids[:, new].contiguous()}
    if not recurrent or any(getattr(layer, "keys", None) is not None for layer in cache.layers):
        second["attention_mask"] = mask[:, : past + second["input_ids"].shape[1]].contiguous()
    if "position_ids" in parameters_of(model):
        second["position_ids"] = positions[:, new].contiguous()
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
    ids = token_ids(model, (batch, sequence), generator)
    mask = torch.ones_like(ids)
    for row, count in enumerate(padding):
        mask[row, sequence - count :] = 0
    inputs = {"input_ids": torch.where(mask == 1, ids, pad_token(model)), "attention_mask": mask}
    kinds = getattr(text_config(model), "type_vocab_size", 0)
    if "token_type_ids" in parameters_of(model) and kinds:
        inputs["token_type_ids"] = torch.zeros_like(ids)
        inputs["token_type_ids"][:, sequence // 2 :] = min(kinds - 1, 1)
    return inputs


def token_ids(
    model: nn.Module, shape: tuple[int, int], generator: torch.Generator
) -> torch.Tensor:
    """Random tokens, none of them padding: RoBERTa would mask it by itself."""
    config = text_config(model)
    ids = torch.randint(0, config.vocab_size - 1, shape, generator=generator)
    return ids + (ids >= pad_token(model)) if config.pad_token_id is not None else ids


def pad_token(model: nn.Module) -> int:
    """The token that stands for padding, 0 where the configuration names none."""
    token = getattr(text_config(model), "pad_token_id", None)
    return token if isinstance(token, int) and token >= 0 else 0


def run_quietly(model: nn.Module, inputs: Inputs) -> tuple[Any, Any]:
    """Run the model without gradient, in eval mode; its mode stays.

    Returns:
        The outputs, and the cache among them, or ``None`` when there is none.

    Raises:
        UsageError: the model raises.
    """
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
        return outputs, None
    return outputs, next((outputs[name] for name in CACHE_NAMES if name in outputs), None)


def is_recurrent(cache: Any) -> bool:
    """Whether a cache holds a state that every token changes, as Mamba's does.

    >>> is_recurrent(None)
    False
    """
    return any(hasattr(layer, "recurrent_states") for layer in getattr(cache, "layers", ()))


def cache_name(model: nn.Module) -> str:
    """The parameter of ``forward`` that takes the cache.

    Raises:
        UsageError: it has none.
    """
    parameters = parameters_of(model)
    found = next((name for name in CACHE_NAMES if name in parameters), None)
    if found is None:
        raise unsupported(model)
    return found


def parameters_of(model: nn.Module) -> Mapping[str, inspect.Parameter]:
    """Named parameters of ``forward``, without ``*args`` and ``**kwargs``."""
    parameters = inspect.signature(model.forward).parameters
    variadic = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return {name: p for name, p in parameters.items() if p.kind not in variadic}


def text_config(model: nn.Module) -> Any:
    """The configuration, of the text decoder where a model has several parts."""
    config: Any = model.config
    return config.get_text_config(decoder=True) if hasattr(config, "get_text_config") else config


def unsupported(model: nn.Module) -> UsageError:
    """The error that says that no inputs can be made for a model, and how to give them."""
    return UsageError(
        f"no inputs are known for {type(model).__name__}: its forward takes "
        f"({', '.join(parameters_of(model))}).\n"
        "Give them with --inputs FILE.py:function, a function that returns input sets; sizes that "
        "differ show what varies"
    )
