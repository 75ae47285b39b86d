"""Sums of products over named axes: einsum, tensordot, bilinear."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product as choices
from string import ascii_letters
from typing import Any

import onnx_ir as ir

from torchferry.converter.block import Block
from torchferry.converter.lowering import lowers
from torchferry.converter.ops.axes import is_complex, moves, rank
from torchferry.converter.ops.complex_number import joined, parts
from torchferry.converter.ops.matrix import product
from torchferry.seams.operators import aten

__all__: list[str] = []

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
    if len(tensors) == 2 and (form := _matrix_form(terms[0], terms[1], result)) is not None:
        x, y = tensors
        turned, swapped = form
        return product(b, _turned(b, x) if turned else x, _turned(b, y) if swapped else y)
    dtype = tensors[0].dtype
    if dtype in _NARROW:
        tensors = [b.cast(t, ir.DataType.INT32) for t in tensors]
    summed = b.Einsum(*tensors, equation=f"{','.join(terms)}->{result}")
    return summed if dtype is None else b.cast(summed, dtype)


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


def _turned(b: Block, x: ir.Value) -> ir.Value:
    order = list(range(len(x.shape or ())))
    order[-2:] = order[:-3:-1]
    return b.Transpose(x, perm=order)


def _matrix_form(left: str, right: str, result: str) -> tuple[bool, bool] | None:
    """Whether a MatMul does it, and which operand it wants transposed."""
    batch = result[:-2]
    if len(result) < 2 or len(left) != len(result) or len(right) != len(result):
        return None
    if not left.startswith(batch) or not right.startswith(batch):
        return None
    (row, column), (a, c), (d, e) = ((t[-2], t[-1]) for t in (result, left, right))
    inner = c if a == row else a
    if inner not in (d, e) or len({row, column, inner, *batch}) != len(batch) + 3:
        return None
    if {a, c} != {row, inner} or {d, e} != {inner, column}:
        return None
    return a != row, e != column


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
