"""Nested arguments → one tensor for each input of the graph."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

from torchferry.dims import Condition, Dim, evaluate, names_in, parse_size
from torchferry.errors import UsageError
from torchferry.observer.naming import in_cache, unaliased
from torchferry.observer.tree import leaves_of
from torchferry.values.describe import string_type
from torchferry.values.flatten import Path, path_text
from torchferry.values.signature import Signature

if TYPE_CHECKING:
    import torch

__all__ = ["InputInfo", "make_feeds"]

_log = logging.getLogger("torchferry")

_size = cache(parse_size)  # a session is fed again and again

InputInfo = tuple["torch.dtype", Sequence[int | str | None]]  # dtype and shape of a graph input


def make_feeds(
    signature: Signature,
    infos: Mapping[str, InputInfo],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> dict[str, torch.Tensor]:
    """Find the tensor of every graph input in the model's own arguments.

    An argument may be given by position or by name, however it was exported;
    ``past_key_values`` and ``cache`` are one. A cache that is empty or left out becomes keys and
    values of length 0.

    Args:
        signature: of the exported model.
        infos: dtype and shape of each graph input; a shape holds sizes and names of dimensions.
        args: positional arguments.
        kwargs: named arguments.

    Returns:
        Tensors by input name, with as many dimensions as the input has.

    Raises:
        UsageError: an argument is missing, unknown, given twice, of another dtype, rank or size,
            a constant that differs from the one exported, or is left out though forward's
            default is another; or dimensions of one name differ, one is not the sum or
            product it was exported as, or the program holds for other sizes only.
    """
    places = {_named(signature, slot.path): slot.name for slot in signature.inputs}
    feeds: dict[str, torch.Tensor] = {}
    given: set[Path] = set()
    for path, leaf in leaves_of(args, kwargs).items():
        known = _named(signature, path)
        if known in given:
            raise UsageError(f"argument {path_text(known)} is given twice")
        given.add(known)
        name = places.get(known)
        if name is None:
            _check_constant(signature, known, leaf)
        else:
            feeds[name] = _checked(name, leaf, infos[name], name in signature.complex)
    _check_required(signature, given)
    for path, name in places.items():
        if name not in feeds:
            # What is computed from an empty cross-attention is another graph.
            if not in_cache(path) or "cross_attention_cache" in path:
                got = string_type((args, kwargs), with_shape=True)
                raise UsageError(f"no value for input {name}; got {got}")
            feeds[name] = _empty(name, feeds, infos)
    _check_conditions(signature, _check_dimensions(feeds, infos))
    return feeds


def _named(signature: Signature, path: Path) -> Path:
    """The path with the parameter's name in place of a position, under one of its aliases."""
    first, *rest = path
    if isinstance(first, int):
        if first >= len(signature.parameters):
            raise UsageError(
                f"too many positional arguments: the model was exported with "
                f"{', '.join(signature.parameters) or 'none'}"
            )
        first = signature.parameters[first]
    return unaliased((first, *rest))


def _check_constant(signature: Signature, path: Path, value: Any) -> None:
    name = path_text(path)
    constants = {_constant_name(signature, key): c for key, c in signature.constants.items()}
    if name in constants:
        # Only NaN differs from itself.
        both_nan = constants[name] != constants[name] and value != value  # noqa: PLR0124
        if constants[name] != value and not both_nan:
            raise UsageError(
                f"argument {name} was exported as {constants[name]!r} and cannot be "
                f"{value!r}: export the model again with the other value"
            )
        return
    names = ", ".join(slot.name for slot in signature.inputs)
    raise UsageError(
        f"the exported model has no input for argument {name}; its inputs are {names}"
    )


def _check_required(signature: Signature, given: set[Path]) -> None:
    names = {path_text(path) for path in given}
    for key in signature.required:
        name = _constant_name(signature, key)
        if name not in names:
            raise UsageError(
                f"argument {name} was exported as {signature.constants[key]!r}, which is not "
                f"forward's default: give {name}={signature.constants[key]!r} in every call"
            )


def _constant_name(signature: Signature, key: str) -> str:
    first, dot, rest = key.partition(".")
    named = _named(signature, (int(first) if first.isdecimal() else first,))
    return f"{named[0]}{dot}{rest}"


def _checked(name: str, leaf: Any, info: InputInfo, pairs: bool = False) -> torch.Tensor:
    import torch

    dtype, shape = info
    try:
        tensor = leaf if isinstance(leaf, torch.Tensor) else torch.tensor(leaf)
    except (RuntimeError, TypeError, ValueError) as error:
        raise UsageError(
            f"input {name} is a {type(leaf).__name__}, but the model takes a tensor"
        ) from error
    if pairs and tensor.is_complex():
        tensor = torch.view_as_real(tensor.resolve_conj())
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


def _check_dimensions(
    feeds: Mapping[str, torch.Tensor], infos: Mapping[str, InputInfo]
) -> dict[str, int]:
    """The size of each name.

    Sizes of a name that differ are refused: what the graph computes from the name would be wrong.
    """
    given = [
        (_size(text), got, f"input {name} has {got} at axis {axis}")
        for name, tensor in feeds.items()
        for axis, (text, got) in enumerate(zip(infos[name][1], tensor.shape, strict=True))
        if text and isinstance(text, str)
    ]
    known: dict[str, int] = {}
    where: dict[str, str] = {}
    for size, got, place in sorted(given, key=lambda one: len(names_in(one[0]))):
        unknown = names_in(size) - known.keys()
        if isinstance(size, Dim) and size.name in unknown:
            known[size.name], where[size.name] = got, place
        elif not unknown and evaluate(size, known) != got:
            others = dict.fromkeys(where[name] for name in sorted(names_in(size)))
            values = ", ".join(f"{name} = {known[name]}" for name in sorted(names_in(size)))
            raise UsageError(
                f"{place}, which is {size} ({values}: {'; '.join(others)}). The model was "
                "exported for sizes that agree: export it again with inputs in which they do not"
            )
    return known


def _check_conditions(signature: Signature, known: Mapping[str, int]) -> None:
    """Refuse sizes for which the program was not captured."""
    for test, sizes in signature.conditions:
        condition = _condition(test, sizes)
        if condition.names <= known.keys() and not condition.holds(known):
            _complain(condition, known)


def _complain(condition: Condition, known: Mapping[str, int]) -> None:
    if not condition.matters:  # nearly always without consequence: a decoder's step of one token
        _warn(str(condition))
        return
    values = ", ".join(f"{name} is {known[name]}" for name in sorted(condition.names))
    raise UsageError(
        f"the model was exported for sizes with {condition}, and {values}: its code does "
        "something else there. Export it again with inputs of such sizes"
    )


@cache
def _warn(condition: str) -> None:
    """Once for each condition."""
    _log.warning(
        "the program was captured for sizes with %s; torchferry.export compares the others too",
        condition,
    )


@cache
def _condition(test: str, sizes: tuple[str, ...]) -> Condition:
    try:
        return Condition(test, sizes)
    except ValueError as error:
        raise UsageError(
            f"the model's signature cannot be read: {error}; export it again"
        ) from error


def _empty(
    name: str, feeds: Mapping[str, torch.Tensor], infos: Mapping[str, InputInfo]
) -> torch.Tensor:
    """Keys or values of an empty cache: sizes known from the other inputs, 0 for the length."""
    import torch

    known: dict[str, int] = {}
    for other, tensor in feeds.items():
        for symbol, size in zip(infos[other][1], tensor.shape, strict=True):
            if isinstance(symbol, str):
                known.setdefault(symbol, size)
    dtype, shape = infos[name]
    sizes = [0 if axis == len(shape) - 2 else size for axis, size in enumerate(shape)]
    unknown = [size for size in sizes if not isinstance(size, int) and size not in known]
    if unknown:
        raise UsageError(f"no value for input {name}, and no other input tells its {unknown[0]}")
    return torch.empty(
        [size if isinstance(size, int) else known[str(size)] for size in sizes], dtype=dtype
    )
