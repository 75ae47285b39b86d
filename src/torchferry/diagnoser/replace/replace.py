"""Put a custom operator in the place of a module, so that an export need not look into it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import torch

from torchferry.diagnoser.record.functions import Function, routed
from torchferry.diagnoser.record.probe import output_leaves
from torchferry.diagnoser.record.shapes import Unsolved, size_at, solve_shapes
from torchferry.diagnoser.record.tree import Mutation, Piece, Record
from torchferry.diagnoser.record.variant import Variant, kind_of, variants
from torchferry.diagnoser.replace.operator import Operator, ShapeOf, make_operator
from torchferry.errors import UsageError
from torchferry.values.describe import string_type
from torchferry.values.flatten import flatten, unflatten
from torchferry.values.kinds import find_kind

__all__ = ["UNRECORDED", "ShapeFunctions", "StandIn", "replaced", "shape_rule"]

UNRECORDED = "is called in a way that was not recorded"
"""What is said of an operator that is given something else than the recorded calls have."""

ShapeFunctions = Mapping[Any, Callable[..., Any] | Mapping[int, Callable[..., Any]]]
"""Of a class, its name, or a piece's name or path: ``f(output index, *args, **kwargs)``, or for
each output index a function of the flattened arguments. Both give sizes, or a tensor that has
them; None leaves it to torchferry."""


class StandIn:
    """What takes the place of a piece's method.

    Attributes:
        piece: the piece.
        operators: one for each kind of call that was recorded.
    """

    def __init__(
        self,
        piece: Piece,
        shape_functions: ShapeFunctions | None = None,
        *,
        symbolic: bool = False,
    ) -> None:
        """Make the operators; nothing is replaced yet.

        Args:
            piece: as it was recorded.
            shape_functions: for outputs whose shape cannot be found.
            symbolic: for a graph that is only to be seen: no operator is registered.

        Raises:
            UsageError: the piece was never called, or its outputs cannot be described: says
                which one, what was seen, and how to help.
        """
        if not piece.calls:
            raise UsageError(f"{piece.full_name} was never called: it cannot be replaced")
        self.piece = piece
        self.operators: list[Operator] = []
        original = getattr(piece.model, piece.entry)

        def compute(*args: Any, **kwargs: Any) -> Any:
            placed, named = piece.placed(args, kwargs)
            return original(*placed, **named)

        for number, variant in enumerate(variants(piece, numbers=True), 1):
            _check_outputs(piece, variant)
            rule = shape_rule(piece, variant, shape_functions)
            name, results = _name(piece, number), output_leaves(variant.calls[0])
            self.operators.append(
                make_operator(name, variant, compute, rule, results, symbolic=symbolic)
            )

    @property
    def named(self) -> dict[str, Operator]:
        """The operators by the names they have in ONNX."""
        return {_name(self.piece, number): one for number, one in enumerate(self.operators, 1)}

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Do what the piece's method does, by one operator."""
        given = self.piece.normalized(args, kwargs)
        leaves, structure = flatten(given)
        values = [leaf for _, leaf in leaves]
        kinds = tuple(kind_of(leaf, numbers=True) for leaf in values)
        for operator in self.operators:
            if (operator.variant.structure, operator.variant.kinds) == (structure, kinds):
                break
        else:
            raise UsageError(
                f"{self.piece.full_name}, replaced by {self.piece.custom_op_name}, {UNRECORDED}: "
                f"{string_type(given)}. Record inputs that lead to this call too"
            )
        results = iter(operator(values))
        template = operator.variant.calls[0]
        outputs = _refill(template.outputs, results)
        if template.mutation is not None:
            _write_back(given, leaves, template.mutation, results)
        return outputs

    @contextmanager
    def in_place(self) -> Iterator[None]:
        """The module calls the operator while the block runs."""
        own = self.put()
        try:
            yield
        finally:
            self.remove(own)

    def put(self) -> Any:
        """Replace the method; returns what `remove` is to be given."""
        own = vars(self.piece.model).get(self.piece.entry)

        def stand_in(*args: Any, **kwargs: Any) -> Any:
            return self(*args, **kwargs)

        # Exporters read the signature here.
        vars(stand_in)["__signature__"] = self.piece.signature
        vars(self.piece.model)[self.piece.entry] = stand_in
        return own

    def remove(self, own: Any) -> None:
        """Restore the method."""
        if own is None:
            vars(self.piece.model).pop(self.piece.entry, None)
        else:
            vars(self.piece.model)[self.piece.entry] = own


@contextmanager
def replaced(stand_ins: Sequence[StandIn]) -> Iterator[None]:
    """All of them in place while the block runs, whatever happens in it."""
    with ExitStack() as stack:
        for one in stand_ins:
            stack.enter_context(one.in_place())
        called = {id(one.piece.model): one for one in stand_ins}
        given = [one.piece.model for one in stand_ins if isinstance(one.piece.model, Function)]
        # Nobody calls the module that a function was made: its callers are led to it.
        stack.enter_context(
            routed(given, lambda one, args, kwargs: called[id(one)](*args, **kwargs))
        )
        yield


def _name(piece: Piece, number: int) -> str:
    """Of the operator for one kind of calls, counted from 1."""
    return piece.custom_op_name if number == 1 else f"{piece.custom_op_name}_v{number}"


def _check_outputs(piece: Piece, variant: Variant) -> None:
    first = variant.calls[0]
    expected = _form(first)
    for call in variant.calls[1:]:
        if _form(call) != expected:
            raise UsageError(
                f"{piece.full_name} ({piece.custom_op_name}) returns in one call "
                f"{string_type(first.outputs)} and in another {string_type(call.outputs)}, with "
                "other values or dtypes: one operator cannot. Replace the module around it"
            )


def _form(call: Record) -> tuple[Any, ...]:
    """What has to be the same in all calls: nesting, dtypes, and all that is no tensor."""
    leaves, structure = flatten(call.outputs)
    kinds = [kind_of(leaf) for _, leaf in leaves]
    mutation = call.mutation
    changed: tuple[Any, ...] = ()
    if mutation is not None:
        changed = (
            mutation.structure,
            tuple((path, kind_of(value)) for path, value in mutation.leaves),
        )
    return structure, tuple(kinds), changed


def shape_rule(piece: Piece, variant: Variant, shape_functions: ShapeFunctions | None) -> ShapeOf:
    """How the shapes of what a piece returns follow from its arguments.

    Raises:
        UsageError: one cannot be found, and no shape function is given for it.
    """
    given = _given(piece, shape_functions)
    solved = solve_shapes(piece, variant)
    for number, shape in enumerate(solved):
        if isinstance(shape, Unsolved) and not _has(given, number):
            raise _ask(piece, number, shape)

    def rule(leaves: Sequence[Any], number: int) -> Sequence[Any]:
        found = _asked(piece, given, leaves, number, variant)
        if found is not None:
            return tuple(found.shape) if isinstance(found, torch.Tensor) else tuple(found)
        shape = solved[number]
        if isinstance(shape, Unsolved):
            raise _ask(piece, number, shape)
        return tuple(size_at(size, leaves) for size in shape)

    return rule


def _given(piece: Piece, functions: ShapeFunctions | None) -> Any:
    keys = (piece.path, piece.full_name, piece.custom_op_name, piece.name, piece.title,
            type(piece.model))  # fmt: skip
    return next((functions[key] for key in keys if functions and key in functions), None)


def _has(given: Any, number: int) -> bool:
    return callable(given) or (isinstance(given, Mapping) and number in given)


def _asked(piece: Piece, given: Any, leaves: Sequence[Any], number: int, variant: Variant) -> Any:
    """What the user's function says of an output."""
    if callable(given):
        args, kwargs = unflatten(leaves, variant.structure)
        # By position where that can be: the function need not have the module's names.
        bound = piece.signature.bind(*args, **kwargs)
        return given(number, *bound.args, **bound.kwargs)
    if isinstance(given, Mapping) and number in given:
        return given[number](*leaves)
    return None


def _ask(piece: Piece, number: int, unsolved: Unsolved) -> UsageError:
    seen = ", ".join(map(str, unsolved.seen[:8]))
    return UsageError(
        f"{piece.full_name} ({piece.custom_op_name}): axis {unsolved.axis} of its output {number} "
        f"is not known: {unsolved.why}" + (f" (seen: {seen})" if seen else "") + ".\n"
        f"Give shape_functions={{{piece.title!r}: {{{number}: lambda *args: sizes}}}}, a function "
        "of the flattened arguments"
    )


def _refill(template: Any, results: Iterator[torch.Tensor]) -> Any:
    """A nested value with its tensors replaced, in order."""
    leaves, structure = flatten(template)
    return unflatten(
        [next(results) if isinstance(leaf, torch.Tensor) else leaf for _, leaf in leaves],
        structure,
    )


def _write_back(
    given: tuple[tuple[Any, ...], dict[str, Any]],
    leaves: Sequence[tuple[Any, Any]],
    mutation: Mutation,
    results: Iterator[torch.Tensor],
) -> None:
    """Change the arguments as the call did."""
    before = dict(leaves)
    after: list[Any] = []
    for path, value in mutation.leaves:
        new = next(results) if isinstance(value, torch.Tensor) else value
        if path is None:
            after.append(new)
            continue
        if value is not None:
            before[path].copy_(new)
        after.append(before[path])
    _assign(given, unflatten(after, mutation.structure))


def _assign(old: Any, new: Any) -> None:
    """Make a container equal to another of its class, without changing who it is."""
    if find_kind(type(old)) is None or old is new:
        return
    if isinstance(old, tuple):
        for mine, other in zip(old, new, strict=True):
            _assign(mine, other)
    elif isinstance(old, list):
        old[:] = new
    elif isinstance(old, dict) and type(old) is dict:
        for key in old:
            _assign(old[key], new[key])
    else:
        vars(old).update(vars(new))
