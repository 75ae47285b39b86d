"""Run a piece at sizes of our choice, to see what sizes come out."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from torchferry.diagnoser.record.recorder import recorded
from torchferry.diagnoser.record.tree import Piece
from torchferry.diagnoser.record.variant import Variant
from torchferry.diagnoser.record.widen import REFUSED, widened
from torchferry.diagnoser.trial.quiet import quiet
from torchferry.errors import UsageError
from torchferry.observer.observation import Call, Observation
from torchferry.observer.tree import leaves_of, replace_leaves
from torchferry.seams.pytorch import FakeTensorMode
from torchferry.values.attributes import attributes_kept
from torchferry.values.clone import clone
from torchferry.values.flatten import flatten, map_leaves

__all__ = ["Row", "output_leaves", "probe"]

_BASE = 5  # the least size that is tried; 0, 1 and 2 have meanings of their own
_MOST = 2**22  # elements of all inputs of a probe with real tensors


@dataclass(frozen=True)
class Row:
    """One run.

    Attributes:
        inputs: the leaves of its arguments.
        outputs: the shape of every tensor that came out; of an integer, the pair of it alone.
    """

    inputs: tuple[Any, ...]
    outputs: tuple[tuple[int, ...], ...]


def output_leaves(call: Call) -> list[Any]:
    """What an operator gives in the place of a call: its outputs, then what it wrote elsewhere."""
    mutation = getattr(call, "mutation", None)
    leaves = [leaf for _, leaf in flatten(call.outputs)[0]]
    changed = [value for _, value in mutation.leaves if value is not None] if mutation else []
    return [leaf for leaf in (*leaves, *changed) if isinstance(leaf, torch.Tensor)]


def probe(piece: Piece, variant: Variant) -> list[Row]:
    """The recorded calls of a variant, and some more at other sizes when they are dynamic.

    A size that cannot be tried (the code does not take it) is left out.
    """
    rows = [_row(piece, call) for call in variant.calls]
    rank = len(rows[0].outputs)
    with quiet(), torch.no_grad():
        for args, kwargs in _other_inputs(piece, variant):
            # Fake tensors too write into buffers, which are none.
            with attributes_kept(piece.model):
                made = _run_fake(piece, args, kwargs) or _run(piece, args, kwargs)
            if made is not None and len(made.outputs) == rank:
                rows.append(made)
    return rows


def _row(piece: Piece, call: Call) -> Row:
    inputs = tuple(leaf for _, leaf in flatten(piece.normalized(call.args, call.kwargs))[0])
    return Row(inputs, tuple(tuple(leaf.shape) for leaf in output_leaves(call)))


def _other_inputs(
    piece: Piece, variant: Variant
) -> Iterator[tuple[tuple[Any, ...], dict[str, Any]]]:
    """Arguments of other sizes: each dynamic dimension by itself, and all at once."""
    # Numbers may differ between the calls, and an observation takes constants only.
    calls = [Call(*_without_numbers(call)) for call in widened(piece, variant).seen.calls]
    seen = Observation(piece.signature, piece.title, calls)
    try:
        names = seen.dynamic_names
    except UsageError:  # what was recorded has to do
        return
    base = {name: _BASE + 2 * number for number, name in enumerate(names)}
    plans = [base] if names else []
    for name in names:
        plans += [{**base, name: base[name] + more} for more in (1, 2, 3, 4, 17)]
    for sizes in plans:
        changed = leaves_of(*seen.inputs_at(sizes))
        args, kwargs = variant.example
        yield replace_leaves(args, kwargs, change=changed.get)


def _without_numbers(call: Call) -> tuple[tuple[Any, ...], dict[str, Any]]:
    return replace_leaves(
        call.args, call.kwargs, change=lambda _, leaf: leaf if _is_tensor(leaf) else None
    )


def _is_tensor(leaf: Any) -> bool:
    return isinstance(leaf, torch.Tensor)


def _run(piece: Piece, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Row | None:
    """Run the module for good."""
    if sum(leaf.numel() for leaf in _tensors((args, kwargs))) > _MOST:
        return None
    return _called(piece, *clone((args, kwargs)))


def _run_fake(piece: Piece, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Row | None:
    with FakeTensorMode(allow_non_fake_inputs=True) as mode:
        fake = map_leaves(
            lambda leaf: mode.from_tensor(leaf) if _is_tensor(leaf) else leaf, (args, kwargs)
        )
        return _called(piece, *fake)


def _called(piece: Piece, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Row | None:
    """What a call gives; None when the code does not take these sizes.

    A copy of the piece records it, so that what the call does to its arguments is seen too.
    """
    given, named = piece.placed(args, kwargs)
    watched = Piece(None, piece.name, piece.model, method_name=piece.method_name)
    try:
        with recorded(watched):
            watched.run(*given, **named)
    except REFUSED:
        return None
    return _row(piece, watched.calls[0]) if watched.calls else None


def _tensors(value: Any) -> Sequence[torch.Tensor]:
    return [leaf for _, leaf in flatten(value)[0] if _is_tensor(leaf)]
