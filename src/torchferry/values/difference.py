"""How far two nested values are apart."""

from __future__ import annotations

import math
import operator
from collections.abc import Hashable, Iterator, Mapping
from typing import Any

import numpy as np
import torch

from torchferry.values.describe import string_type
from torchferry.values.discrepancy import Discrepancy, string_diff, together, worst
from torchferry.values.flatten import Path, path_text
from torchferry.values.kinds import attempt, find_kind
from torchferry.values.measure import is_numeric, measure

__all__ = ["Discrepancy", "max_diff", "string_diff", "worst"]


def max_diff(expected: Any, got: Any) -> Discrepancy:
    """Compare two nested values of tensors, arrays and numbers.

    Lists and tuples of any class are compared by position, mappings by key whatever their order;
    other containers, caches too, must be of one class. What else a container knows (layer
    classes, counts of tokens) is not compared. NaN and infinities are equal to themselves; a NaN
    on one side counts in ``dnan`` and makes ``abs`` infinite. Integers are compared exactly,
    floats of any width in float64. Other leaves (None, strings, ...) must be equal.

    Args:
        expected: the reference; relative differences divide by ``max(|expected|, 1e-3)``.
        got: what is compared with it.

    Returns:
        the discrepancy of the whole. Structures, shapes or other leaves that differ give an
        infinite ``abs`` and a ``reason`` with the path; dtypes that differ give a ``reason``,
        with the numbers compared all the same.

    >>> import torch
    >>> diff = max_diff({"y": torch.tensor([1.0, 2.0])}, {"y": torch.tensor([1.0, 2.5])})
    >>> diff.abs, diff.rel, diff.argm, diff.path
    (0.5, 0.25, (1,), 'y')
    >>> max_diff([1, 2], [1]).reason
    'the value: expected 2 items, got 1'
    """
    try:
        return together(list(_compare(expected, got, (), frozenset())))
    except RecursionError:
        return _apart((), "something to compare", "a value that is too deep")


def _compare(
    expected: Any, got: Any, path: Path, inside: frozenset[tuple[int, int]]
) -> Iterator[Discrepancy]:
    if _is_nested(expected) and _is_nested(got):
        expected, got = expected.unbind(), got.unbind()
    kinds = find_kind(type(expected)), find_kind(type(got))
    if kinds == (None, None):
        yield _compare_leaves(expected, got, path)
        return
    if kinds[0] is None or kinds[1] is None or _family(expected) != _family(got):
        yield _apart(path, _shown(expected), _shown(got))
        return
    pair = id(expected), id(got)
    if pair in inside:
        return  # they contain themselves: what they hold is being compared
    parts, error = attempt(kinds[0].flatten, expected)
    other, wrong = attempt(kinds[1].flatten, got)
    if error or wrong:
        yield _apart(path, "something to compare", f"what raises {error or wrong!r:.60}")
        return
    children, others = parts[0], other[0]
    if children.keys() != others.keys():
        yield _apart(path, *_keys_shown(expected, children, others))
        return
    for key, child in children.items():
        step = key if isinstance(key, str | int) else str(key)
        yield from _compare(child, others[key], (*path, step), inside | {pair})


def _compare_leaves(expected: Any, got: Any, path: Path) -> Discrepancy:
    numeric = is_numeric(expected), is_numeric(got)
    if all(numeric):
        return measure(expected, got, path_text(path))
    if any(numeric) or type(expected) is not type(got):
        return _apart(path, _shown(expected), _shown(got))
    if expected is got:
        return Discrepancy(path=path_text(path))
    how = _equal_arrays if isinstance(expected, np.ndarray | np.generic) else operator.eq
    equal, error = attempt(how, expected, got)
    if error is not None or not isinstance(equal, bool | np.bool_):
        return _apart(path, "something to compare", _shown(got))
    if equal:
        return Discrepancy(path=path_text(path))
    return _apart(path, _repr(expected), _repr(got))


def _equal_arrays(one: np.ndarray[Any, Any], other: np.ndarray[Any, Any]) -> bool:
    """Of texts, dates or objects; a date that is none is equal to another such."""
    if one.shape != other.shape:
        return False
    none = (one != one) & (other != other)  # noqa: PLR0124  (NaT differs from itself)
    return bool(((one == other) | none).all())


def _repr(value: Any) -> str:
    text, _ = attempt(repr, value)
    return f"{text or type(value).__name__:.40}"


def _is_nested(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.is_nested


def _family(value: Any) -> object:
    if isinstance(value, list | tuple):
        return "sequence"
    return "mapping" if isinstance(value, Mapping) else type(value)


def _apart(path: Path, expected: str, got: str) -> Discrepancy:
    text = path_text(path)
    reason = f"{text or 'the value'}: expected {expected}, got {got}"
    return Discrepancy(math.inf, math.inf, math.inf, reason=reason, path=text)


def _shown(value: Any) -> str:
    text = string_type(value, with_shape=True)
    return text if len(text) <= 80 else f"{text[:77]}..."


def _keys_shown(
    value: Any, children: dict[Hashable, Any], others: dict[Hashable, Any]
) -> tuple[str, str]:
    if isinstance(value, list | tuple):
        return f"{len(children)} items", str(len(others))
    return f"keys {list(children)}"[:200], f"{list(others)}"[:200]
