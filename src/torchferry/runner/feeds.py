"""Nested arguments → one tensor for each input of the graph."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from torchferry.errors import UsageError
from torchferry.observer.naming import unaliased
from torchferry.observer.tree import leaves_of
from torchferry.values.describe import string_type
from torchferry.values.flatten import path_text
from torchferry.values.signature import Signature

if TYPE_CHECKING:
    import torch

__all__ = ["InputInfo", "make_feeds"]

InputInfo = tuple["torch.dtype", Sequence[int | str | None]]  # dtype and shape of a graph input


def make_feeds(
    signature: Signature,
    infos: Mapping[str, InputInfo],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> dict[str, torch.Tensor]:
    """Find the tensor of every graph input in the model's own arguments.

    Positional arguments go by forward's parameter names. ``past_key_values`` and ``cache`` are one
    argument. A cache that is empty or left out becomes keys and values of length 0.

    Args:
        signature: of the exported model.
        infos: dtype and shape of each graph input; a shape holds sizes and names of dimensions.
        args: positional arguments.
        kwargs: named arguments.

    Returns:
        Tensors by input name, with as many dimensions as the input has.

    Raises:
        UsageError: an argument is missing, unknown, of another dtype or rank, or a constant that
            differs from the one exported.
    """
    import torch

    places = {unaliased(slot.path): slot.name for slot in signature.inputs}
    feeds: dict[str, torch.Tensor] = {}
    for path, leaf in leaves_of(*_named(signature, args, kwargs)).items():
        name = places.get(unaliased(path))
        if name is None:
            _check_constant(signature, path_text(path), leaf)
            continue
        tensor = leaf if isinstance(leaf, torch.Tensor) else torch.as_tensor(leaf)
        feeds[name] = _checked(name, tensor, infos[name])
    for path, name in places.items():
        if name not in feeds:
            if path[0] != "past_key_values":
                given = string_type((args, kwargs), with_shape=True)
                raise UsageError(f"no value for input {name}; got {given}")
            feeds[name] = _empty(infos[name], feeds, infos)
    return feeds


def _named(
    signature: Signature, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Arguments as they were exported: by position only where the exported ones were."""
    by_position = {slot.path[0] for slot in signature.inputs if isinstance(slot.path[0], int)}
    if by_position or not args:
        return args, kwargs
    if len(args) > len(signature.parameters):
        raise UsageError(
            f"{len(args)} positional arguments given, but forward takes "
            f"{', '.join(signature.parameters) or 'none'}"
        )
    named = dict(zip(signature.parameters, args, strict=False))
    twice = sorted(named.keys() & kwargs.keys())
    if twice:
        raise UsageError(f"argument {twice[0]} is given twice, by position and by name")
    return (), {**named, **kwargs}


def _check_constant(signature: Signature, name: str, value: Any) -> None:
    if name in signature.constants:
        if signature.constants[name] != value:
            raise UsageError(
                f"argument {name} was exported as {signature.constants[name]!r} and cannot be "
                f"{value!r}: export the model again with the other value"
            )
        return
    names = ", ".join(slot.name for slot in signature.inputs)
    raise UsageError(
        f"the exported model has no input for argument {name}; its inputs are {names}"
    )


def _checked(name: str, tensor: torch.Tensor, info: InputInfo) -> torch.Tensor:
    dtype, shape = info
    if tensor.dtype != dtype:
        raise UsageError(f"input {name} is {tensor.dtype}, but the model takes {dtype}")
    fits = tensor.ndim == len(shape) and all(
        not isinstance(size, int) or size == got
        for size, got in zip(shape, tensor.shape, strict=True)
    )
    if not fits:
        wanted = "x".join(str(size) for size in shape)
        raise UsageError(
            f"input {name} has shape {'x'.join(map(str, tensor.shape)) or 'scalar'}, "
            f"but the model takes {wanted or 'a scalar'}"
        )
    return tensor


def _empty(
    info: InputInfo, feeds: Mapping[str, torch.Tensor], infos: Mapping[str, InputInfo]
) -> torch.Tensor:
    """Keys or values of an empty cache: sizes known from the other inputs, 0 for the length."""
    import torch

    known: dict[str, int] = {}
    for name, tensor in feeds.items():
        for symbol, size in zip(infos[name][1], tensor.shape, strict=True):
            if isinstance(symbol, str):
                known.setdefault(symbol, size)
    dtype, shape = info
    sizes = [s if isinstance(s, int) else known.get(str(s), 0) for s in shape]
    sizes[-2] = 0
    return torch.empty(sizes, dtype=dtype)
