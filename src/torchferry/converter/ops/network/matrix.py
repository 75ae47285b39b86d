"""Products of matrices and vectors.

onnxruntime multiplies float32, float64 and 32- or 64-bit integers; narrower integers are
multiplied in int32 and cut back, which is the same modulo their width.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

import onnx_ir as ir
import torch

from torchferry.converter.block import Block
from torchferry.converter.lowering import lowers
from torchferry.seams.operators import aten

__all__ = ["product"]

Number = int | float | ir.Value

_NARROW = {ir.DataType.INT8, ir.DataType.UINT8, ir.DataType.INT16, ir.DataType.UINT16}
_GEMM = {ir.DataType.FLOAT, ir.DataType.DOUBLE, ir.DataType.FLOAT16}


def product(b: Block, x: ir.Value, y: ir.Value) -> ir.Value:
    """``x @ y`` as NumPy broadcasts it, for any dtype that PyTorch multiplies."""
    if len(y.shape or ()) == 1 and len(x.shape or ()) > 1:
        # onnxruntime 1.32 folds a Transpose of x into a product with a vector wrongly.
        return b.Squeeze(product(b, x, b.Unsqueeze(y, [1])), [-1])
    if x.dtype in _NARROW:
        wide = ir.DataType.INT32
        return b.cast(b.MatMul(b.cast(x, wide), b.cast(y, wide)), x)
    return b.MatMul(x, y)


def _rank(x: ir.Value) -> int:
    if x.shape is None:
        raise ValueError("the rank of a matrix is not known")
    return len(x.shape)


def _swapped(b: Block, x: ir.Value) -> ir.Value:
    """``x`` with its last two axes swapped."""
    if _rank(x) == 2:
        return b.transposed(x)
    order = list(range(_rank(x)))
    return b.Transpose(x, perm=[*order[:-2], order[-1], order[-2]])


def _plus(b: Block, x: ir.Value, y: ir.Value, beta: Number, alpha: Number) -> ir.Value:
    """``beta * x + alpha * y``; ``x`` is not read when beta is zero, so its NaN do not count."""
    scaled = y if _is(alpha, 1) else b.Mul(y, alpha)
    if _is(beta, 0):
        return scaled
    return b.Add(x if _is(beta, 1) else b.Mul(x, beta), scaled)


def _is(number: Number, value: int) -> bool:
    return not isinstance(number, ir.Value) and number == value


@lowers(aten.linear.default)
def linear(b: Block, x: ir.Value, weight: ir.Value, bias: ir.Value | None = None) -> ir.Value:
    if _rank(weight) == 1:
        multiplied = product(b, x, weight)
    elif _rank(x) == 2 and bias is not None and _rank(bias) < 2 and x.dtype in _GEMM:
        return b.Gemm(x, weight, bias, transB=1)
    else:
        multiplied = product(b, x, b.transposed(weight))
    return multiplied if bias is None else b.Add(multiplied, bias)


@lowers(aten.matmul.default, aten.mm.default, aten.bmm.default, aten.mv.default, aten.dot.default)
def matmul(b: Block, x: ir.Value, other: ir.Value) -> ir.Value:
    return product(b, x, other)


@lowers(aten.vdot.default)
def vdot(b: Block, x: ir.Value, other: ir.Value) -> ir.Value:
    return product(b, x, other)  # real: nothing to conjugate


@lowers(aten.mm.dtype, aten.bmm.dtype)
def mm_dtype(b: Block, x: ir.Value, mat2: ir.Value, out_dtype: torch.dtype) -> ir.Value:
    return b.MatMul(b.cast(x, out_dtype), b.cast(mat2, out_dtype))


@lowers(aten.inner.default)
def inner(b: Block, x: ir.Value, other: ir.Value) -> ir.Value:
    if _rank(x) == 0 or _rank(other) == 0:
        return b.Mul(x, other)
    if _rank(other) == 1:
        return product(b, x, other)
    rows = other
    if _rank(other) > 2:
        last = b.dim(other, -1)
        rows = b.Reshape(other, b.vector([-1, last]))
    result = product(b, x, b.Transpose(rows, perm=[1, 0]))
    if _rank(other) == 2:
        return result
    sizes = [b.dim(v, axis) for v in (x, other) for axis in range(_rank(v) - 1)]
    return b.Reshape(result, b.vector(sizes))


@lowers(aten.outer.default, aten.ger.default, promote="default")
def outer(b: Block, x: ir.Value, vec2: ir.Value) -> ir.Value:
    column = b.Unsqueeze(x, [1])
    return b.And(column, vec2) if x.dtype == ir.DataType.BOOL else b.Mul(column, vec2)


@lowers(aten.chain_matmul.default)
def chain_matmul(b: Block, matrices: Sequence[ir.Value]) -> ir.Value:
    return reduce(lambda x, y: product(b, x, y), matrices)


@lowers(aten.linalg_multi_dot.default)
def linalg_multi_dot(b: Block, tensors: Sequence[ir.Value]) -> ir.Value:
    # a vector at the end makes every product a cheap one when it is read from that side
    if _rank(tensors[-1]) == 1:
        return reduce(lambda x, y: product(b, y, x), reversed(tensors))
    return reduce(lambda x, y: product(b, x, y), tensors)


# With something added ----------------------------------------------------------------------------


@lowers(aten.addmm.default)
def addmm(
    b: Block,
    x: ir.Value,
    mat1: ir.Value,
    mat2: ir.Value,
    beta: Number = 1,
    alpha: Number = 1,
) -> ir.Value:
    numbers = not isinstance(beta, ir.Value) and not isinstance(alpha, ir.Value)
    if numbers and mat1.dtype in _GEMM:
        factors = {"alpha": alpha if alpha != 1 else None, "beta": beta if beta != 1 else None}
        return b.Gemm(mat1, mat2, None if beta == 0 else x, **factors)
    return _plus(b, x, product(b, mat1, mat2), beta, alpha)


@lowers(aten._addmm_activation.default)
def _addmm_activation(
    b: Block,
    x: ir.Value,
    mat1: ir.Value,
    mat2: ir.Value,
    beta: Number = 1,
    alpha: Number = 1,
    use_gelu: bool = False,
) -> ir.Value:
    result = addmm(b, x, mat1, mat2, beta=beta, alpha=alpha)
    if use_gelu:
        raise ValueError("its GELU is not the same on every device, call addmm and gelu instead")
    return b.Relu(result)


@lowers(aten.addmv.default)
def addmv(
    b: Block, x: ir.Value, mat: ir.Value, vec: ir.Value, beta: Number = 1, alpha: Number = 1
) -> ir.Value:
    return _plus(b, x, product(b, mat, vec), beta, alpha)


@lowers(aten.baddbmm.default)
def baddbmm(
    b: Block,
    x: ir.Value,
    batch1: ir.Value,
    batch2: ir.Value,
    beta: Number = 1,
    alpha: Number = 1,
) -> ir.Value:
    return _plus(b, x, product(b, batch1, batch2), beta, alpha)


@lowers(aten.addbmm.default)
def addbmm(
    b: Block,
    x: ir.Value,
    batch1: ir.Value,
    batch2: ir.Value,
    beta: Number = 1,
    alpha: Number = 1,
) -> ir.Value:
    wide = ir.DataType.INT32
    narrow = batch1.dtype in _NARROW
    products = product(b, *(b.cast(v, wide) if narrow else v for v in (batch1, batch2)))
    added = b.ReduceSum(products, [0], keepdims=0)
    return _plus(b, x, b.cast(added, x), beta, alpha)


@lowers(aten.addr.default, promote="default", operands=("x", "vec1", "vec2"))
def addr(
    b: Block, x: ir.Value, vec1: ir.Value, vec2: ir.Value, beta: Number = 1, alpha: Number = 1
) -> ir.Value:
    multiplied = outer(b, vec1, vec2)
    if x.dtype != ir.DataType.BOOL:
        return _plus(b, x, multiplied, beta, alpha)
    scaled = multiplied if alpha else b.And(multiplied, False)
    return b.Or(x, scaled) if beta else scaled


# Complex: (a + bi)(c + di) in real products ------------------------------------------------------


@lowers(
    aten.matmul.default, aten.mm.default, aten.bmm.default, aten.mv.default, aten.dot.default,
    complex=True,
)  # fmt: skip
def complex_matmul(b: Block, x: ir.Value, other: ir.Value) -> ir.Value:
    (a, c), (d, e) = (_parts(b, v) for v in (x, other))
    real = b.Sub(b.MatMul(a, d), b.MatMul(c, e))
    imaginary = b.Add(b.MatMul(a, e), b.MatMul(c, d))
    return b.Concat(b.Unsqueeze(real, [-1]), b.Unsqueeze(imaginary, [-1]), axis=-1)


def _parts(b: Block, x: ir.Value) -> tuple[ir.Value, ir.Value]:
    if not x.meta.get("complex"):
        raise ValueError("a real matrix times a complex one, make both complex")
    return b.Gather(x, 0, axis=-1), b.Gather(x, 1, axis=-1)
