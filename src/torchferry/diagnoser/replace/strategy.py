"""When a module is replaced by a custom operator."""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches
from enum import IntEnum

from torchferry.diagnoser.record.tree import Piece
from torchferry.errors import UsageError

__all__ = ["CustomOpStrategy", "Strategy", "check_strategy", "strategy_of"]


class CustomOpStrategy(IntEnum):
    """When a submodule becomes a custom operator, so that the export need not look into it.

    ``NONE``: never. ``ONLY_IF_FAILING``: a module that fails is tried again with those of its
    submodules that fail replaced. ``ALWAYS``: the module itself is exported as one operator.
    ``LOCAL``: all its submodules are replaced, so that only its own code is exported.
    """

    NONE = 0
    ONLY_IF_FAILING = 1
    ALWAYS = 2
    LOCAL = 3


Strategy = (
    bool | CustomOpStrategy | Mapping[str, CustomOpStrategy] | Mapping[type, CustomOpStrategy]
)
"""One for all (True is ``ALWAYS``), or by a module's class, class name, name or dotted path."""


def strategy_of(strategy: Strategy, piece: Piece) -> CustomOpStrategy:
    """What holds for one piece; ``NONE`` for what a mapping does not name.

    >>> import torch
    >>> from torchferry.diagnoser.record.tree import Piece, build_tree
    >>> piece = build_tree(Piece, torch.nn.ReLU())
    >>> strategy_of({"ReLU": CustomOpStrategy.LOCAL}, piece).name, strategy_of(True, piece).name
    ('LOCAL', 'ALWAYS')
    """
    if isinstance(strategy, bool):
        return CustomOpStrategy.ALWAYS if strategy else CustomOpStrategy.NONE
    if isinstance(strategy, CustomOpStrategy):
        return strategy
    found = {str(key) if isinstance(key, str) else key: code for key, code in strategy.items()}
    for key in (piece.path, piece.full_name, piece.name, piece.title, type(piece.model)):
        if key in found:
            return found[key]
    return CustomOpStrategy.NONE


def check_strategy(strategy: object, root: Piece) -> None:
    """Refuse what is no strategy, or names a module that is not there.

    Raises:
        UsageError: says what the model has.
    """
    if isinstance(strategy, bool | CustomOpStrategy):
        return
    codes = list(strategy.values()) if isinstance(strategy, Mapping) else [strategy]
    wrong = next((code for code in codes if not isinstance(code, CustomOpStrategy)), None)
    if not isinstance(strategy, Mapping) or wrong is not None:
        raise UsageError(
            f"replace_by_custom_op is {wrong!r}: give a bool, a CustomOpStrategy "
            f"({', '.join(CustomOpStrategy.__members__)}), or a dictionary of them by module"
        )
    known: set[object] = set()
    for piece in root.walk():
        known |= {piece.path, piece.full_name, piece.name, piece.title, type(piece.model)}
    for key in strategy:
        if key not in known:
            close = get_close_matches(str(key), [str(k) for k in known if isinstance(k, str)], n=1)
            hint = f"; did you mean {close[0]!r}?" if close else ""
            raise UsageError(f"replace_by_custom_op: there is no module or class {key!r}{hint}")
