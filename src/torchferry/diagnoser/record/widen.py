"""Which dimensions of a piece vary, where its calls of one kind are too few to tell.

The layers of a transformer are given a mask for a padded batch and None for another: two kinds of
calls, one of each, from which nothing would be seen to vary. What varies between the kinds does,
and an axis of the mask that has the size of one such dimension is taken to vary with it.
"""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from typing import Any

import torch

from torchferry.capturer import Fixed
from torchferry.capturer.patching.registering import register_containers
from torchferry.diagnoser.record.tree import Piece, Record
from torchferry.diagnoser.record.variant import Variant, variants
from torchferry.diagnoser.trial.quiet import quiet
from torchferry.dims import Dim, Size, evaluate, names_in
from torchferry.errors import UsageError
from torchferry.observer.observation import Call, Observation
from torchferry.observer.resize import resize
from torchferry.observer.tree import leaves_of, replace_leaves
from torchferry.values.buffers import buffers_kept
from torchferry.values.clone import clone
from torchferry.values.flatten import Path

__all__ = ["REFUSED", "Widened", "main_variant", "widened"]

REFUSED = (
    ArithmeticError, AssertionError, AttributeError, LookupError, NotImplementedError,
    RuntimeError, TypeError, ValueError,
)  # fmt: skip
"""What code raises that does not take sizes of our own making."""

Places = dict[Path, dict[int, tuple[Size, bool]]]
"""The axes that vary: their size, and whether that is a guess."""


@dataclass(frozen=True)
class Widened:
    """What is seen of one kind of calls.

    Attributes:
        seen: the calls, and perhaps one more that was made up from them.
        guessed: ``(argument, axis)`` that vary by a guess: it is no fault if they are fixed.
        made: that call, with what PyTorch gives for it.
    """

    seen: Observation
    guessed: frozenset[tuple[str, int]] = frozenset()
    made: Record | None = None

    def contradicts(self, one: Fixed) -> bool:
        """Whether a call was seen in which a dimension is not what it was made.

        Few calls let one size be told in several ways, as that of another argument plus a
        constant: a dimension that is tied to what it equals in all calls is right. So is one that
        was guessed.
        """
        seen = self.seen
        if (one.argument, one.axis) in self.guessed:
            return False
        if one.axis < 0 or isinstance(one.size, int):
            return True
        path = next(argument.path for argument in seen.arguments if argument.name == one.argument)
        shapes = [leaves_of(*seen.normalized(call))[path].shape for call in seen.calls]
        known = [seen.sizes_of(call) for call in seen.calls]
        return any(
            not names_in(one.size) <= sizes.keys() or evaluate(one.size, sizes) != shape[one.axis]
            for shape, sizes in zip(shapes, known, strict=True)
        )


def widened(piece: Piece, variant: Variant) -> Widened:
    """The calls of a variant, with one of other sizes where those of other variants differ.

    The piece is run with the made-up call. Sizes that it does not take, as where one belongs to a
    number that was passed beside the tensor, stay as they are.
    """
    calls: list[Call] = list(variant.calls)
    # Modules hand one another what the model neither takes nor returns.
    register_containers([(call.args, call.kwargs, call.outputs) for call in calls])
    tensors = [_tensors(piece, call) for call in piece.calls]
    sizes = _varying(piece, tensors)
    mine = [_tensors(piece, call) for call in calls]
    # Names whose size differs between all calls, though not between these.
    values: dict[str, int] = {}
    for path, axes in sizes.items():
        for axis, size in axes.items():
            name = size.name if isinstance(size, Dim) else None
            found = {one[path].shape[axis] for one in mine if path in one}
            if name is not None and len(found) == 1:
                values.setdefault(name, found.pop())
    if not values or len(calls) > 1:
        return Widened(Observation(piece.signature, piece.title, calls))
    places = _places(mine[0], sizes, values)
    made = _taken(piece, variant, places, values)
    if made is None:
        known = {path: axes for path, axes in places.items() if path in sizes}
        places, made = _largest(piece, variant, known, values)
    seen = Observation(piece.signature, piece.title, calls)
    if made is None:
        return Widened(seen)
    seen.add(Call(made.args, made.kwargs))
    names = {argument.path: argument.name for argument in seen.arguments}
    guessed = frozenset(
        (names[path], axis)
        for path, axes in places.items()
        for axis, (_, guess) in axes.items()
        if guess
    )
    return Widened(seen, guessed, made)


def _largest(
    piece: Piece, variant: Variant, places: Places, values: dict[str, int]
) -> tuple[Places, Record | None]:
    """As many dimensions as the piece takes to be changed together, one after the other."""
    kept: set[str] = set()
    found: tuple[Places, Record | None] = ({}, None)
    for name in values:
        names = kept | {name}
        some = {
            path: {axis: place for axis, place in axes.items() if names_in(place[0]) <= names}
            for path, axes in places.items()
        }
        made = _taken(piece, variant, some, values)
        if made is not None:
            kept, found = names, (some, made)
    return found


def _taken(
    piece: Piece, variant: Variant, places: Places, values: dict[str, int]
) -> Record | None:
    """A call with other sizes, and what comes of it; None when the piece does not take them."""
    other = {name: value + 3 + 2 * number for number, (name, value) in enumerate(values.items())}
    generator = torch.Generator().manual_seed(0)

    def change(path: Path, leaf: Any) -> Any:
        if not isinstance(leaf, torch.Tensor) or path not in places:
            return leaf
        shape = list(leaf.shape)
        for axis, (size, _) in places[path].items():
            shape[axis] = evaluate(size, other)
        return resize(leaf, shape, generator)

    args, kwargs = replace_leaves(*variant.example, change=change)
    given = clone((args, kwargs))
    with quiet(), buffers_kept(piece.model), torch.no_grad():
        try:
            outputs = piece.run(*given[0], **given[1])
        except REFUSED:
            return None
    return Record(args, kwargs, clone(outputs))


def main_variant(piece: Piece) -> tuple[Variant, Widened]:
    """The largest variant of a piece that has calls, and what it says of the dimensions."""
    variant = variants(piece)[0]
    return variant, widened(piece, variant)


def _tensors(piece: Piece, call: Call) -> dict[Path, torch.Tensor]:
    found = leaves_of(*piece.normalized(call.args, call.kwargs))
    return {path: leaf for path, leaf in found.items() if isinstance(leaf, torch.Tensor)}


def _varying(piece: Piece, tensors: list[dict[Path, torch.Tensor]]) -> dict[Path, dict[int, Size]]:
    """The axes that vary between all calls, of tensors that every call has in one rank."""
    common = set.intersection(*(set(one) for one in tensors))
    kept = [
        path
        for path in tensors[0]
        if path in common and len({(one[path].ndim, one[path].dtype) for one in tensors}) == 1
    ]
    calls = [Call((), {str(number): one[path] for number, path in enumerate(kept)})
             for one in tensors]  # fmt: skip
    found = Observation(_ANY, piece.title, calls)
    try:
        arguments = found.arguments
    except UsageError:
        return {}
    return {
        kept[int(str(argument.path[0]))]: {
            axis.index: axis.size for axis in argument.axes if isinstance(axis.size, Dim)
        }
        for argument in arguments
    }


def _any(**kwargs: Any) -> None:
    """Takes everything."""


_ANY = inspect.signature(_any)


def _places(
    tensors: dict[Path, torch.Tensor], sizes: dict[Path, dict[int, Size]], values: dict[str, int]
) -> Places:
    """The size of each axis that varies, and whether that is a guess."""
    named: dict[int, list[str]] = {}
    for name, value in values.items():
        named.setdefault(value, []).append(name)
    found: Places = {}
    for path, tensor in tensors.items():
        if path in sizes:
            known = {a: s for a, s in sizes[path].items() if names_in(s) <= values.keys()}
            found[path] = {axis: (size, False) for axis, size in known.items()}
            continue
        guesses = {axis: named.get(size, []) for axis, size in enumerate(tensor.shape) if size > 1}
        found[path] = {
            axis: (Dim.of(names[0]), True) for axis, names in guesses.items() if len(names) == 1
        }
    return found
