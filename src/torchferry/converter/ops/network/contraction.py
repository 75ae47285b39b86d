"""Sums of products over named axes: einsum, tensordot, bilinear."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product as choices
from string import ascii_letters
from typing import Any

import onnx_ir as ir

from torchferry.converter.block import Block
from torchferry.converter.lowering import lowers
from torchferry.converter.ops.network.matrix import product
from torchferry.converter.ops.rare.complex.complex_number import joined, parts
from torchferry.converter.ops.shape.axes import is_complex, moves, rank, sizes_of, times
from torchferry.converter.ops.shape.view import reshaped
from torchferry.seams.operators import aten

__all__: list[str] = []

Term = tuple[ir.Value, str]
"""An operand and a letter for each of its axes."""

_COMPLEX = 3  # operands; each doubles the number of nodes
_NARROW = {ir.DataType.INT8, ir.DataType.UINT8, ir.DataType.INT16, ir.DataType.UINT16}


@moves(aten.einsum.default)
def einsum(
    b: Block, equation: str, tensors: Sequence[ir.Value], path: Sequence[int] | None = None
) -> ir.Value:
    terms, result = _spelled_out(equation.replace(" ", ""), [rank(t) for t in tensors])
    return _contracted(b, terms, result, tensors)


@moves(aten.tensordot.default)
def tensordot(
    b: Block,
    x: ir.Value,
    other: ir.Value,
    dims_self: Sequence[int],
    dims_other: Sequence[int],
) -> ir.Value:
    left, right = rank(x), rank(other)
    letters = ascii_letters[:left], list(ascii_letters[left : left + right])
    gone = [range(left)[dim] for dim in dims_self]
    for axis, dim in zip(gone, dims_other, strict=True):
        letters[1][dim] = letters[0][axis]
    shared = {letters[0][axis] for axis in gone}
    kept = "".join(c for c in [*letters[0], *letters[1]] if c not in shared)
    return _contracted(b, [letters[0], "".join(letters[1])], kept, (x, other))


@lowers(aten.bilinear.default)
def bilinear(
    b: Block, input1: ir.Value, input2: ir.Value, weight: ir.Value, bias: ir.Value | None = None
) -> ir.Value:
    batch = ascii_letters[3 : 2 + len(input1.shape or ())]
    terms = [f"{batch}a", "cab", f"{batch}b"]
    result = _contracted(b, terms, f"{batch}c", (input1, weight, input2))
    return result if bias is None else b.Add(result, bias)


def _contracted(
    b: Block, terms: Sequence[str], result: str, tensors: Sequence[ir.Value]
) -> ir.Value:
    if any(map(is_complex, tensors)):
        return _complex(b, terms, result, tensors)
    dtype = tensors[0].dtype
    if dtype in _NARROW:
        tensors = [b.cast(t, ir.DataType.INT32) for t in tensors]
    value, letters = tensors[0], terms[0]
    for number, other in enumerate(tensors[1:], 1):
        kept = result + "".join(terms[number + 1 :])
        value, letters = _multiplied(b, (value, letters), (other, terms[number]), kept)
    value = _alone(b, value, letters, result)
    return value if dtype is None else b.cast(value, dtype)


def _multiplied(b: Block, left: Term, right: Term, kept: str) -> Term:
    """The product of two operands, summed over the axes that nobody asks for afterwards.

    Einsum does the same in onnxruntime, but ends the process where an axis is empty (1.32).
    """
    left = _without_ones(b, left, right[1])
    right = _without_ones(b, right, left[1])
    if kept and kept[-1] in left[1] and kept[-1] not in right[1]:
        left, right = right, left  # so that the last axis is of the right factor, as asked for
    (x, first), (y, second) = (
        _summed(b, one, f"{other[1]}{kept}") for one, other in ((left, right), (right, left))
    )
    shared = [c for c in first if c in second]
    batch = "".join(c for c in shared if c in kept)
    inner = "".join(c for c in shared if c not in kept)
    own, others = ("".join(c for c in term if c not in shared) for term in (first, second))
    if not inner:
        x, y = _alone(b, x, first, batch + own), _alone(b, y, second, batch + others)
        x = _with_axes(b, x, range(len(first), len(first) + len(others)))
        y = _with_axes(b, y, range(len(batch), len(batch) + len(own)))
        return b.Mul(x, y), batch + own + others
    letters = batch + own + others
    if not batch and len(inner) == len(others) == 1 < len(own):  # rows of several axes
        return product(
            b, _alone(b, x, first, own + inner), _alone(b, y, second, inner + others)
        ), letters
    sizes = dict(zip(second, sizes_of(b, y), strict=True))
    sizes |= dict(zip(first, sizes_of(b, x), strict=True))
    x = _matrices(b, x, first, (batch, own, inner))
    made = product(b, x, _matrices(b, y, second, (batch, inner, others)))
    if len(own) == len(others) == 1:
        return made, letters
    return reshaped(b, made, [sizes[c] for c in letters]), letters


def _without_ones(b: Block, term: Term, others: str) -> Term:
    """An operand without the axes of size 1 that broadcast, which the other one has too."""
    x, letters = term
    gone = [axis for axis, c in enumerate(letters) if c in others and b.dim(x, axis) == 1]
    if not gone:
        return term
    return b.Squeeze(x, gone), "".join(c for axis, c in enumerate(letters) if axis not in gone)


def _summed(b: Block, term: Term, kept: str) -> Term:
    """An operand summed over the axes that only it has, and with each letter once."""
    x, letters = term
    left = "".join(c for c in dict.fromkeys(letters) if c in kept)
    return (x, letters) if left == letters else (_alone(b, x, letters, left), left)


def _alone(b: Block, x: ir.Value, letters: str, result: str) -> ir.Value:
    """An operand with its axes in another order, summed over those that are not asked for."""
    if letters == result:
        return x
    if sorted(letters) != sorted(result):
        made = b.Einsum(x, equation=f"{letters}->{result}")
        made.shape = ir.Shape([(x.shape or ())[letters.index(c)] for c in result])
        return made
    order = [letters.index(c) for c in result]
    return b.transposed(x) if len(order) == 2 else b.Transpose(x, perm=order)


def _with_axes(b: Block, x: ir.Value, axes: Sequence[int]) -> ir.Value:
    return b.Unsqueeze(x, list(axes)) if axes else x


def _matrices(b: Block, x: ir.Value, letters: str, groups: tuple[str, str, str]) -> ir.Value:
    """An operand as matrices: after those of the batch an axis for each of two groups."""
    batch, *two = groups
    x = _alone(b, x, letters, "".join(groups))
    if [len(group) for group in two] == [1, 1]:
        return x
    sizes = sizes_of(b, x)
    cut = len(batch) + len(two[0])
    flat = [times(b, *sizes[len(batch) : cut]), times(b, *sizes[cut:])]
    return reshaped(b, x, [*sizes[: len(batch)], *flat])


def _complex(b: Block, terms: Sequence[str], result: str, tensors: Sequence[ir.Value]) -> ir.Value:
    """A sum of products for each choice of a part of every operand."""
    operands = [parts(b, t) if is_complex(t) else (t,) for t in tensors]
    if sum(len(halves) - 1 for halves in operands) > _COMPLEX:
        raise ValueError(f"it multiplies more than {_COMPLEX} complex tensors, do it in two steps")
    sums: list[ir.Value | None] = [None, None]
    for choice in choices(*(range(len(halves)) for halves in operands)):
        chosen = [halves[part] for halves, part in zip(operands, choice, strict=True)]
        term = _contracted(b, terms, result, chosen)
        place, negative = sum(choice) % 2, sum(choice) % 4 > 1  # powers of the imaginary unit
        before = sums[place]
        if before is not None:
            term = b.Sub(before, term) if negative else b.Add(before, term)
        sums[place] = term  # the first of each place is positive
    real, imaginary = sums
    if real is None or imaginary is None:
        raise AssertionError("a complex operand gives both parts")
    return joined(b, real, imaginary)


def _spelled_out(equation: str, ranks: Sequence[int]) -> tuple[list[str], str]:
    """The terms and the result with a letter for every axis, those of an ellipsis too."""
    given, arrow, wanted = equation.partition("->")
    terms = given.split(",")
    unused = (c for c in ascii_letters if c not in equation)
    covered = [r - len(t.replace("...", "")) for t, r in zip(terms, ranks, strict=True)]
    widest = max((n for t, n in zip(terms, covered, strict=True) if "..." in t), default=0)
    ellipsis = "".join(_first(unused, widest))
    named = [
        t.replace("...", ellipsis[len(ellipsis) - n :])
        for t, n in zip(terms, covered, strict=True)
    ]
    if arrow:
        return named, wanted.replace("...", ellipsis)
    letters = [c for term in terms for c in term.replace("...", "")]
    once = sorted(c for c in letters if letters.count(c) == 1)
    return named, ellipsis + "".join(once)


def _first(letters: Iterator[Any], count: int) -> Iterator[str]:
    for _ in range(count):
        yield next(letters)
