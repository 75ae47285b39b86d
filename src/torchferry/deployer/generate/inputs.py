"""What a deployed model of tokens is called with: refused in a sentence if it cannot run it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from torchferry.errors import UsageError

__all__ = ["check_prompt", "check_tokens", "context_of", "explain_refusal"]

_HINT = ': tokenizer(text, return_tensors="pt") gives what is right'
_LENGTHS = ("max_position_embeddings", "max_target_positions", "n_positions")
_KINDS = {
    "tensor(float)": "floating point", "tensor(float16)": "floating point",
    "tensor(int64)": "int64", "tensor(bool)": "bool",
}  # fmt: skip


def context_of(config: Any) -> int:
    """How many tokens a model takes at once; 0 if its configuration does not say."""
    return next((int(n) for name in _LENGTHS if (n := getattr(config, name, 0))), 0)


def check_prompt(name: str, x: object) -> None:
    """Refuse what is no batch of tokens or of features before transformers takes it apart.

    Args:
        name: of the argument.
        x: int64 (batch, sequence) if the name ends in ``_ids``, or floats, the batch first.

    Raises:
        UsageError: it is something else, or empty.
    """
    tokens = name.endswith("_ids")
    wanted = "int64 (batch, sequence)" if tokens else "floats, the batch first"
    tensor = x if isinstance(x, torch.Tensor) else None
    if tensor is None or (tokens and (tensor.ndim != 2 or tensor.is_floating_point())):
        held = type(x).__name__ if tensor is None else f"{tensor.dtype} {tuple(tensor.shape)}"
        raise UsageError(f"{name} is {held}, and a deployed model takes a tensor, {wanted}{_HINT}")
    if not tensor.numel():
        raise UsageError(f"{name} is empty, {tuple(tensor.shape)}: give one token at least")
    if tensor.device.type != "cpu":
        raise UsageError(f"{name} is on {tensor.device}, and a deployed model runs on the CPU")


def check_tokens(name: str, ids: Any, mask: torch.Tensor | None = None, past: int = 0) -> None:
    """Refuse tokens below 0, which ONNX counts from the end, and a mask of another length.

    Args:
        name: of the tokens' argument.
        ids: int64 (batch, sequence).
        mask: integers or bool, (batch, past + sequence).
        past: tokens of the cache.

    Raises:
        UsageError: the tokens or their mask do not fit.
    """
    check_prompt(name, ids)
    if int(ids.min()) < 0:
        raise UsageError(f"{name} holds {int(ids.min())}, and tokens begin at 0{_HINT}")
    wanted = (len(ids), past + ids.shape[1])
    if mask is not None and (tuple(mask.shape) != wanted or mask.is_floating_point()):
        raise UsageError(
            f"attention_mask is {mask.dtype} {tuple(mask.shape)}, and for these tokens, with "
            f"those of the cache, it has to be int64 {wanted}{_HINT}"
        )


def explain_refusal(inputs: Sequence[Any], feeds: Mapping[str, Any], config: Any) -> str:
    """Why onnxruntime does not run what it was given, as far as the inputs tell.

    Args:
        inputs: of the session.
        feeds: values of onnxruntime by name.
        config: of the model's text.

    Returns: a sentence; nothing if all is as the graph says.
    """
    sizes: dict[str, tuple[int, str]] = {}
    for value in inputs:
        fed = feeds.get(value.name)
        if fed is None:
            return f"{value.name} is missing"
        shape = tuple(fed.shape())
        fits = len(shape) == len(value.shape) and fed.data_type() == value.type
        for size, given in zip(value.shape, shape, strict=False):
            fits = fits and (not isinstance(size, int) or size == given)
            other, name = sizes.setdefault(str(size), (given, value.name))
            if fits and other != given:
                return f"{size} is {other} in {name}, and {given} in {value.name} {shape}"
        if not fits:
            wanted = f"{_KINDS.get(value.type, value.type)} ({', '.join(map(str, value.shape))})"
            held = f"{_KINDS.get(fed.data_type(), fed.data_type())} {shape}"
            return f"{value.name} is {held}, and the graph takes {wanted}"
    vocabulary, context = int(getattr(config, "vocab_size", 0)), context_of(config)
    ids = feeds.get("input_ids")
    if ids is None:
        return ""
    if 0 < vocabulary <= (largest := int(ids.numpy().max())):
        return f"input_ids holds {largest}, and the model knows tokens 0 to {vocabulary - 1}"
    own = (x for name, x in feeds.items() if name.startswith("past") and ".encoder." not in name)
    cache = next(own, None)
    total = ids.shape()[1] + (0 if cache is None else cache.shape()[2])
    if 0 < context < total:
        return f"{total} tokens are more than the {context} that the model takes at once"
    return ""
