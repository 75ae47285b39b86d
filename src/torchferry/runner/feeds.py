"""Nested arguments → one tensor for each input of the graph."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cache, cached_property, lru_cache, partial
from typing import TYPE_CHECKING, Any

from torchferry.errors import Mismatch, UsageError
from torchferry.observer.naming import in_cache, unaliased
from torchferry.observer.tree import containers_of, path_of
from torchferry.runner.conditions import check_conditions
from torchferry.runner.dimensions import check_sizes, feed_sizes, named_axes
from torchferry.values.describe import string_type
from torchferry.values.flatten import Path, path_text, register_pytrees
from torchferry.values.layout import why_not_ordinary
from torchferry.values.reliance import check_reliances
from torchferry.values.signature import Constant, Signature, is_same_constant

if TYPE_CHECKING:
    import torch

__all__ = ["Feeder", "InputInfo"]

InputInfo = tuple["torch.dtype", Sequence[int | str | None]]  # dtype and shape of a graph input

_LARGEST = 2**31  # integers are computed with in 64 bits, and some of it in float32
_STRUCTURES = 16  # how many nestings of arguments are remembered


class Feeder:
    """Finds the tensor of every graph input in the model's own arguments, call after call.

    What is the same in all calls is read once. An argument may be given by position or by name,
    however it was exported; ``past_key_values`` and ``cache`` are one. A cache that is empty or
    left out becomes keys and values of length 0.
    """

    def __init__(self, signature: Signature, infos: Mapping[str, InputInfo]) -> None:
        """Read how the model's inputs are nested, and their sizes.

        Args:
            signature: of the exported model.
            infos: dtype and shape of each graph input.
        """
        self._signature = signature
        self._infos = infos
        self._places = {_named(signature, slot.path): slot.name for slot in signature.inputs}
        self._paths: dict[Any, list[Path]] = {}  # of the leaves, by structure of the arguments
        self._named = lru_cache(1024)(partial(_named, signature))
        self._accepted: dict[str, int] | None = None  # sizes of the last call
        shapes = {name: shape for name, (_, shape) in infos.items()}
        integers = signature.integers
        self._axes = lru_cache(_STRUCTURES)(partial(named_axes, shapes, integers=integers))

    def __call__(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, torch.Tensor]:
        """Find the tensors of one call.

        Args:
            args: positional arguments of the call.
            kwargs: named arguments of the call.

        Returns:
            Tensors by input name, with as many dimensions as the input has.

        Raises:
            UsageError: an argument is missing, unknown, given twice, of another dtype, rank or
                size, a constant that differs from the one exported, or is left out though
                forward's default is another; or dimensions of one name differ, one is not the
                sum or product it was exported as, or the program holds for other sizes only.
            Mismatch: no call of the model was found right when it was verified.
        """
        if self._signature.unproven:
            raise Mismatch(
                f"the exported model was not found right in any call: {self._signature.unproven}. "
                "Look for the reason with torchferry compare; onnxruntime itself runs the file"
            )
        feeds: dict[str, torch.Tensor] = {}
        given: dict[Path, Any] = {}
        for path, leaf in self._leaves(args, kwargs):
            known = self._named(path)
            if leaf is None:
                if path_text(known) in self._constants:
                    self._check_constant(known, leaf)
                continue
            if known in given:
                raise UsageError(f"argument {path_text(known)} is given twice")
            given[known] = leaf
            name = self._places.get(known)
            if name is None:
                self._check_constant(known, leaf)
            else:
                pairs = name in self._signature.complex
                self._check_type(name, leaf)
                feeds[name] = _checked(name, leaf, self._infos[name], pairs)
        self._check_given(given)
        for path, name in self._places.items():
            if name not in feeds:
                # What is computed from an empty cross-attention is another graph.
                if not in_cache(path) or "cross_attention_cache" in path:
                    got = string_type((args, kwargs), with_shape=True)
                    raise UsageError(f"no value for input {name}; got {got}")
                feeds[name] = _empty(name, feeds, self._infos)
        self._check_sizes(feeds)
        return feeds

    def _check_sizes(self, feeds: Mapping[str, torch.Tensor]) -> None:
        shapes = feed_sizes(feeds, self._signature.integers)
        sizes = check_sizes(shapes, self._axes(tuple(feeds)))
        if sizes != self._accepted:
            check_conditions(self._signature, sizes)
            self._accepted = sizes

    def _leaves(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Iterator[tuple[Path, Any]]:
        """Every leaf, None too, as `torchferry.observer.tree.leaves_of` finds them."""
        from torchferry.seams.pytorch import pytree

        leaves, structure = pytree.tree_flatten((args, kwargs))
        # None is a leaf like any other for PyTorch, and not for the model's code.
        key = structure, tuple(leaf is None for leaf in leaves)
        paths = self._paths.get(key)
        # Another object may be of a class that PyTorch is still to be told of.
        if paths is None or not all(isinstance(leaf, _plain()) for leaf in leaves):
            register_pytrees()
            keyed, structure = pytree.tree_flatten_with_path((args, kwargs))
            leaves = [leaf for _, leaf in keyed]
            paths = [path_of(key_path)[1:] for key_path, _ in keyed]
            self._check_containers(args, kwargs)
            if len(self._paths) >= _STRUCTURES:
                self._paths.clear()
            if all(isinstance(part, str) for path, _ in keyed for part in _keys_of(path)):
                self._paths[key] = paths  # structures with the keys 1 and True are equal
        return zip(paths, leaves, strict=True)

    def _check_containers(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Refuse lists, mappings and None that are not those exported: code may ask for them."""
        exported = {
            _constant_name(self._signature, key): kind
            for key, kind in self._signature.containers.items()
        }
        given = {
            path_text(self._named(path)): kind
            for path, kind in containers_of(args, kwargs).items()
        }
        required = {_constant_name(self._signature, key) for key in self._signature.required}
        for place in dict.fromkeys([*exported, *given]):
            wanted, got = exported.get(place, "nothing"), given.get(place, "nothing")
            default = (wanted, got) == ("None", "nothing") and place not in required
            if wanted != got and not default and not self._is_leaf(place):
                now = "something else, or left out" if got == "nothing" else got
                raise UsageError(
                    f"argument {place} is {now}, and was exported as {wanted}: the model's code "
                    "may do something else for it. Give it as exported, or export it so"
                )

    def _is_leaf(self, place: str) -> bool:
        """Whether a tensor or a constant was exported there, which are checked by themselves."""
        return place in self._constants or any(path_text(path) == place for path in self._places)

    @cached_property
    def _constants(self) -> dict[str, Constant]:
        constants = self._signature.constants
        return {_constant_name(self._signature, key): value for key, value in constants.items()}

    def _check_constant(self, path: Path, value: Any) -> None:
        name = path_text(path)
        if name in self._constants:
            wanted = self._constants[name]
            if not is_same_constant(wanted, value):
                raise UsageError(
                    f"argument {name} was exported as {wanted!r} and cannot be "
                    f"{string_type(value) if hasattr(value, 'shape') else repr(value)}: export "
                    "the model again with the other value"
                )
            return
        names = ", ".join(slot.name for slot in self._signature.inputs)
        raise UsageError(
            f"the exported model has no input for argument {name}; its inputs are {names}"
        )

    def _check_type(self, name: str, leaf: Any) -> None:
        """Refuse a number for a tensor and the other way round: code may ask, and they round."""
        is_integer = name in self._signature.integers
        # NumPy's numbers have a dtype, and some are Python's too.
        number = isinstance(leaf, int | float | complex) and not hasattr(leaf, "dtype")
        if is_integer != number or (is_integer and type(leaf) is not int):
            wanted = "an integer" if is_integer else "a tensor"
            raise UsageError(
                f"input {name} is {string_type(leaf)}, and was exported as {wanted}: give it so"
            )
        if is_integer and abs(leaf) >= _LARGEST:
            raise UsageError(
                f"input {name} is {leaf}: nobody has tried integers as large as 2**31 or larger"
            )

    def _check_given(self, given: Mapping[Path, Any]) -> None:
        asked = self._signature.relies
        if not self._signature.required and not asked:
            return
        names = {path_text(path): leaf for path, leaf in given.items()}
        check_reliances(asked, names, [path_text(path) for path in self._places])
        for key in self._signature.required:
            name = _constant_name(self._signature, key)
            if key in self._signature.constants and name not in names:
                value = self._signature.constants[key]
                raise UsageError(
                    f"argument {name} was exported as {value!r}, which is not "
                    f"forward's default: give {name}={value!r} in every call"
                )


def _keys_of(key_path: Any) -> Iterator[Any]:
    """The keys of dictionaries on the way to a leaf."""
    from torchferry.seams.pytorch import pytree

    return (key.key for key in key_path if isinstance(key, pytree.MappingKey))


@cache
def _plain() -> tuple[type, ...]:
    import torch

    return (torch.Tensor, bool, int, float, complex, str, type(None))


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
    if tensor.layout is not torch.strided or tensor.is_nested or tensor.is_quantized:
        raise UsageError(f"input {name} is {string_type(tensor)}, but the model takes a dense one")
    if tensor.is_meta:
        raise UsageError(f"input {name} is on device meta, without data: give a dense tensor")
    if tensor.is_neg():  # the imaginary part of a conjugate is negated where it is read
        raise UsageError(f"input {name} is a negated view: give {name}.resolve_neg()")
    if type(tensor) is not torch.Tensor and (reason := why_not_ordinary(tensor)):
        raise UsageError(
            f"input {name} is {reason}, and a program does not: give a plain tensor, "
            f"{name}.as_subclass(torch.Tensor)"
        )
    if pairs and tensor.is_complex():
        tensor = torch.view_as_real(tensor.resolve_conj())
    if tensor.dtype != dtype:
        raise UsageError(
            f"input {name} is {tensor.dtype}, but the model takes {dtype}: give it in that dtype"
        )
    fits = tensor.ndim == len(shape) and all(
        not isinstance(size, int) or size == got
        for size, got in zip(shape, tensor.shape, strict=True)
    )
    if not fits:
        raise UsageError(
            f"input {name} has shape {_shape_text(tensor.shape) or 'scalar'}, "
            f"but the model takes {_shape_text(shape) or 'a scalar'}"
        )
    return tensor


def _shape_text(shape: Sequence[int | str | None]) -> str:
    """``2x3``, and ``batch x 3`` where sizes have names, which may hold an x; ``?`` for any."""
    named = not all(isinstance(size, int) for size in shape)
    return (" x " if named else "x").join("?" if size is None else str(size) for size in shape)


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
