"""``b.Mul(x, 0.5)``: the new nodes of a rewrite."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import onnx_ir as ir

from torchferry.optimizer.inference import infer_node

__all__ = ["Block"]


class Block:
    """Collects nodes that are not in a graph yet; any operator is a method.

    Numbers among the inputs become constants: of the type of the first value among the inputs, or
    int64 when they are a list of integers. ``None`` leaves an input out, or an attribute.

    >>> x = ir.val("x", ir.DataType.FLOAT16)
    >>> b = Block(20)
    >>> half = b.Mul(x, 0.5)
    >>> b.nodes[0].op_type, b.constants[0].dtype.name, b.constants[0].shape.rank()
    ('Mul', 'FLOAT16', 0)

    Attributes:
        opset: the ONNX opset of the model.
        nodes: in the order they were made.
        constants: that the nodes need.
        domains: that the nodes need, and their versions.
    """

    def __init__(self, opset: int) -> None:
        self.opset = opset
        self.nodes: list[ir.Node] = []
        self.constants: list[ir.Value] = []
        self.domains: dict[str, int] = {}

    def __getattr__(self, op_type: str) -> Callable[..., Any]:
        if not op_type[:1].isupper():
            raise AttributeError(f"Block has no {op_type}, and no ONNX operator is called so")

        def make(*inputs: Any, **settings: Any) -> Any:
            return self.op(op_type, *inputs, **settings)

        return make

    def op(
        self,
        op_type: str,
        *inputs: Any,
        domain: str = "",
        outputs: int = 1,
        version: int = 1,
        like: ir.Value | None = None,
        **attributes: Any,
    ) -> Any:
        """Add one node; ``b.Relu(x)`` is ``b.op("Relu", x)``.

        Args:
            op_type: the operator.
            inputs: values, numbers, lists of numbers, arrays, or ``None``.
            domain: of the operator.
            outputs: how many; a tuple comes back when it is not 1.
            version: of a domain that is not ONNX's own.
            like: a value whose type and shape the first output has; where they are not given,
                they are inferred for operators of ONNX itself.
            attributes: of the node.
        """
        first = next((item for item in inputs if isinstance(item, ir.Value)), None)
        values = [
            item if item is None or isinstance(item, ir.Value) else self._number(item, first)
            for item in inputs
        ]
        while values and values[-1] is None:
            values.pop()
        given = {name: value for name, value in attributes.items() if value is not None}
        node = ir.node(op_type, values, given, domain=domain, num_outputs=outputs)
        if like is not None:
            node.outputs[0].type, node.outputs[0].shape = like.type, like.shape
        if domain:
            self.domains[domain] = version
        self.nodes.append(node)
        return node.outputs[0] if outputs == 1 else node.outputs

    def again(self, node: ir.Node, inputs: Sequence[Any], **attributes: Any) -> Any:
        """Add a node of the operator and the attributes of another one.

        Args:
            node: the other.
            inputs: of the new node.
            attributes: those that differ; ``None`` leaves one out.
        """
        kept: dict[str, Any] = {
            name: item for name, item in node.attributes.items() if name not in attributes
        }
        return self.op(
            node.op_type, *inputs, domain=node.domain, outputs=len(node.outputs), **kept,
            **attributes,
        )  # fmt: skip

    def constant(
        self, content: Any, dtype: ir.DataType | ir.Value | ir.TensorProtocol | None = None
    ) -> ir.Value:
        """A constant tensor.

        Args:
            content: a tensor, an array, a number, or a nested list of numbers.
            dtype: its type or the value that has it; of an array its own, else int64 or float32.
        """
        if hasattr(content, "tobytes") and not isinstance(content, (np.ndarray, np.generic)):
            tensor: ir.TensorProtocol = content
        else:
            wanted = dtype if dtype is None or isinstance(dtype, ir.DataType) else dtype.dtype
            tensor = ir.tensor(_array(content, wanted), dtype=wanted)
        value = ir.Value(const_value=tensor, type=ir.TensorType(tensor.dtype))
        value.shape = ir.Shape(tensor.shape.numpy())
        self.constants.append(value)
        return value

    def _number(self, item: Any, beside: ir.Value | None) -> ir.Value:
        whole = isinstance(item, (list, tuple)) and all(isinstance(part, int) for part in item)
        if isinstance(item, np.ndarray) or whole or beside is None:
            return self.constant(item, ir.DataType.INT64 if whole else None)
        if beside.dtype is None:
            self._infer()
        return self.constant(item, beside)

    def _infer(self) -> None:
        """Find out the types of what was made so far; the names are not those it will have."""
        for index, value in enumerate(self.constants):
            value.name = f"constant{index}"
        for index, node in enumerate(self.nodes):
            for place, value in enumerate(node.outputs):
                value.name = f"node{index}.{place}"
            infer_node(node, {"": self.opset, **self.domains})


def _array(content: Any, dtype: ir.DataType | None) -> np.ndarray[Any, Any]:
    array = np.asarray(content)
    if dtype is not None:
        return array.astype(dtype.numpy())
    if not isinstance(content, (np.ndarray, np.generic)) and array.dtype == np.float64:
        return array.astype(np.float32)
    return array
