"""Sizes of a call against the conditions that the model was exported under."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

from torchferry.dims import Condition
from torchferry.errors import UsageError
from torchferry.values.signature import Signature

__all__ = ["check_conditions", "conditions_in"]


def check_conditions(signature: Signature, known: Mapping[str, int]) -> None:
    """Refuse sizes and integers for which the program was not captured.

    Args:
        signature: of the exported model.
        known: what `check_sizes` gives.

    Raises:
        UsageError: the program holds for other sizes only, or the inputs do not tell.
    """
    for condition in conditions_in(signature):
        if unknown := condition.unknown(known):
            raise UsageError(
                f"the model was exported for sizes with {condition}, and its inputs do not tell "
                f"{unknown[0]}: export the model again"
            )
        if not condition.holds(known):
            raise _refusal(condition, known)


def conditions_in(signature: Signature) -> list[Condition]:
    """The conditions of a signature, in its order.

    Raises:
        UsageError: one cannot be read.
    """
    return [_condition(*condition) for condition in signature.conditions]


def _refusal(condition: Condition, known: Mapping[str, int]) -> UsageError:
    named = {*condition.names, *condition.sizes} & known.keys()
    values = ", ".join(f"{name} is {known[name]}" for name in sorted(named))
    at = f" ({condition.line})" if condition.line else ""
    return UsageError(
        f"the model was exported for sizes with {condition}, and {values}: its code does "
        f"something else there{at}. Export it again with inputs of such sizes"
    )


@cache
def _condition(
    test: str, sizes: tuple[str, ...], line: str = "", choice: bool = False
) -> Condition:
    try:
        return Condition(test, sizes, line, choice)
    except ValueError as error:
        raise UsageError(
            f"the model's signature cannot be read: {error}; export it again"
        ) from error
