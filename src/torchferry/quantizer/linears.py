"""The products and look-ups of a graph whose weights can be stored in few bits."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from torchferry.quantizer.grid import Array

__all__ = ["LEAST", "Linear", "Table", "find_linears", "find_tables"]

LEAST = 1024
"""Elements of the smallest weight that is worth a scale of its own."""
_FLOATS = {
    ir.DataType.FLOAT: 2.0**-21,
    ir.DataType.FLOAT16: 2.0**-10,
    ir.DataType.BFLOAT16: 2.0**-7,
}
"""By how much of itself a number may be moved as it is computed and stored."""


@dataclass(frozen=True)
class Linear:
    """A product of activations and a constant matrix.

    Attributes:
        node: MatMul, or Gemm without factors.
        weight: the initializer.
        swapped: whether the initializer is (N, K): the product reads it through a Transpose, or
            it is Gemm's with ``transB``.
    """

    node: ir.Node
    weight: ir.Value
    swapped: bool

    @property
    def name(self) -> str:
        """The parameter's name in the PyTorch model."""
        return str(self.weight.name).removesuffix(".T")

    @property
    def as_stored(self) -> bool:
        """Whether PyTorch's parameter is the matrix (N, K), not (K, N)."""
        return self.swapped != str(self.weight.name).endswith(".T")

    @property
    def shape(self) -> tuple[int, int]:
        """(N, K): outputs and inputs."""
        rows, columns = (int(size) for size in _tensor(self.weight).shape.numpy())
        return (rows, columns) if self.swapped else (columns, rows)

    @property
    def rounding(self) -> float:
        """By how much of themselves elements may be moved as they were computed and stored."""
        return _FLOATS[_tensor(self.weight).dtype]

    def rows(self, start: int, stop: int) -> Array:
        """Some rows of the matrix (N, K), float32; reads no more of a mapped file than these."""
        content = _tensor(self.weight).numpy()
        part = content[start:stop] if self.swapped else content[:, start:stop].T
        return np.ascontiguousarray(part, np.float32)


@dataclass(frozen=True)
class Table:
    """A look-up of rows: ``Gather(weight, ids)`` along the first axis.

    Attributes:
        node: the Gather.
        weight: the initializer, (N, K).
    """

    node: ir.Node
    weight: ir.Value


def find_linears(graph: ir.Graph) -> Iterator[Linear]:
    """The products with a constant matrix, in the graph's order; not those in subgraphs."""
    for node in graph:
        if node.domain == "" and node.op_type == "MatMul":
            weight, swapped = _source(node.inputs[1])
        elif node.domain == "" and node.op_type == "Gemm" and _is_plain(node):
            weight, swapped = node.inputs[1], bool(node.attributes.get_int("transB", 0))
        else:
            continue
        if weight is not None and _is_matrix(weight):
            yield Linear(node, weight, swapped)


def find_tables(graph: ir.Graph) -> Iterator[Table]:
    """The look-ups of rows of a constant matrix."""
    for node in graph:
        if node.domain == "" and node.op_type == "Gather":
            weight = node.inputs[0]
            if not node.attributes.get_int("axis", 0) and weight and _is_matrix(weight):
                yield Table(node, weight)


def _source(value: ir.Value | None) -> tuple[ir.Value | None, bool]:
    """The initializer that a product reads, and whether a Transpose stands between."""
    maker = None if value is None else value.producer()
    if maker is not None and maker.op_type == "Transpose" and maker.domain == "":
        perm = maker.attributes.get_ints("perm", [1, 0])
        return (maker.inputs[0], True) if list(perm) == [1, 0] else (None, False)
    return value, False


def _is_plain(node: ir.Node) -> bool:
    get = node.attributes.get_float
    return not node.attributes.get_int("transA", 0) and get("alpha", 1.0) == get("beta", 1.0) == 1


def _is_matrix(value: ir.Value) -> bool:
    tensor = value.const_value
    return (
        tensor is not None
        and value.is_initializer()
        and not value.is_graph_input()
        and not value.is_graph_output()
        and tensor.dtype in _FLOATS
        and len(tensor.shape) == 2
        and tensor.size >= LEAST
    )


def _tensor(value: ir.Value) -> ir.TensorProtocol:
    tensor = value.const_value
    if tensor is None:  # _is_matrix asked
        raise AssertionError
    return tensor
