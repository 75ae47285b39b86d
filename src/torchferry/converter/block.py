"""``b.Add(x, 1)``: ONNX nodes out of values and Python numbers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import onnx_ir as ir
import torch

from torchferry.converter.weight import Weight, weight_value
from torchferry.converter.write.peephole import plain_weight, simplified
from torchferry.converter.write.promote import onnx_dtype
from torchferry.converter.write.schema import operator
from torchferry.converter.write.shape import infer_shape

__all__ = ["Block", "Constants"]

MICROSOFT = "com.microsoft"
_NARROW = {np.dtype(np.float64): np.dtype(np.float32), np.dtype(np.int32): np.dtype(np.int64)}


class Constants:
    """Small tensors that lowerings need, each stored once as an initializer of the main graph."""

    def __init__(self) -> None:
        self.values: dict[tuple[Any, ...], ir.Value] = {}
        self._kept: list[torch.Tensor] = []  # an id is one tensor's while it lives

    def of(self, array: np.ndarray[Any, Any], dtype: ir.DataType) -> ir.Value:
        """The initializer with this content."""
        key = (dtype, array.shape, array.tobytes())
        if key not in self.values:
            name = f"constant_{len(self.values)}"
            tensor = ir.Tensor(array, dtype=dtype, name=name)
            value = ir.Value(name=name, const_value=tensor, shape=ir.Shape(array.shape))
            value.type = ir.TensorType(dtype)
            self.values[key] = value
        return self.values[key]

    def weight(self, tensor: torch.Tensor, name: str) -> ir.Value:
        """The initializer of a tensor that the program holds."""
        key = ("weight", id(tensor))
        if key not in self.values:
            self.values[key] = weight_value(tensor, name)
            self._kept.append(tensor)
        return self.values[key]


class Block:
    """The list of nodes of one graph, and the only way to add to it.

    Any operator is a method: ``b.Gemm(x, w, bias, transB=1)``. Numbers and lists of numbers among
    the inputs become constants, of the dtype the operator's schema asks for beside the other
    inputs; inputs and attributes that are ``None`` are left out. One value comes back, or a tuple
    of them when ``outputs=`` asks for more than one. ``domain=`` takes it from another domain
    than ONNX's own. Dtypes and, where they are plain, shapes of what comes back are set.

    Attributes:
        opset: the ONNX opset that is written.
        nodes: what was added, in order.
        results: how many values the operator returns that is being written.
        read: the places of those that something reads.
    """

    def __init__(
        self, opset: int, constants: Constants | None = None, outer: Block | None = None
    ) -> None:
        self.opset = opset
        self.nodes: list[ir.Node] = []
        self.results = 1
        self.read: frozenset[Any] = frozenset()
        self.outer = outer
        self.constants = constants or Constants()
        self.domains: dict[str, int] = outer.domains if outer else {"": opset}
        self._sizes: dict[Any, ir.Value] = {}
        self._shapes: dict[tuple[int, int, int], ir.Value] = {}

    def __getattr__(self, op_type: str) -> Callable[..., Any]:
        if not op_type[0].isupper():
            raise AttributeError(f"Block has no {op_type}, and no ONNX operator is called so")

        def add(*inputs: Any, **attributes: Any) -> Any:
            return self.add(op_type, inputs, **attributes)

        return add

    def add(
        self,
        op_type: str,
        inputs: Sequence[Any],
        *,
        domain: str = "",
        outputs: int = 1,
        version: int = 1,
        **attributes: Any,
    ) -> Any:
        """Add one node; what ``b.Relu(x)`` stands for.

        Raises:
            ValueError: the opset has no such operator, or the operator no such attribute.
        """
        given = {name: value for name, value in attributes.items() if value is not None}
        if domain:
            self.domains.setdefault(domain, version)
            values = [
                v if v is None or isinstance(v, ir.Value) else self.constant(v) for v in inputs
            ]
            dtypes = [next((v.dtype for v in values if v is not None), None)] * outputs
        else:
            values, dtypes = _typed(self, op_type, inputs, given, outputs)
            if not given and (known := simplified(self, op_type, values)) is not None:
                return known
            if op_type == "Gather":
                values[1] = _not_counted(self, values[1])
            elif op_type in ("Gemm", "MatMul"):
                values[1] = plain_weight(self, *values[:2])
        while values and values[-1] is None:
            values.pop()
        node = ir.node(op_type, values, given, domain=domain, num_outputs=outputs)
        for output, dtype in zip(node.outputs, dtypes, strict=True):
            if dtype is not None:
                output.type = ir.TensorType(dtype)
        self.nodes.append(node)
        infer_shape(node)
        return node.outputs[0] if outputs == 1 else tuple(node.outputs)

    # Constants ---------------------------------------------------------------------------------

    def constant(
        self, value: Any, dtype: ir.DataType | torch.dtype | ir.Value | None = None
    ) -> ir.Value:
        """A constant tensor.

        Args:
            value: a number, a nested list of numbers, or an array.
            dtype: its element type, that of another value, or by the content: int64, float32
                or bool.
        """
        element = _element_type(dtype)
        if element is None:
            array: Any = np.asarray(value)
            array = array.astype(_NARROW.get(array.dtype, array.dtype))
            return self.constants.of(array, ir.DataType.from_numpy(array.dtype))
        return self.constants.of(np.asarray(value).astype(element.numpy()), element)

    def cast(self, x: Any, dtype: ir.DataType | torch.dtype | ir.Value) -> ir.Value:
        """``x`` in another dtype; ``x`` itself when it has it already.

        Complex numbers stay complex, with parts of that dtype.
        """
        wanted = _element_type(dtype)
        if wanted is None:
            raise ValueError("the dtype to cast to is not known")
        if not isinstance(x, ir.Value):
            return self.constant(x, wanted)
        if x.dtype == wanted:
            return x
        pairs = bool(x.meta.get("complex"))
        number = None if pairs else _number_of(x)  # a constant is one value for all who need it
        if number is not None:
            return self.constant(number, wanted)
        cast: ir.Value = self.Cast(_kept_apart(self, x, wanted), to=wanted.value)
        if pairs:
            cast.meta["complex"] = True
        return cast

    # Sizes -------------------------------------------------------------------------------------

    def dim(self, x: ir.Value, axis: int) -> int | ir.Value:
        """The size of an axis: an int when it is constant, else an int64 value of shape [1]."""
        if x.shape is not None:
            axis = range(len(x.shape))[axis]
            size = x.shape[axis]
            if isinstance(size, int):
                return size
            if isinstance(size, ir.SymbolicDim) and (known := self.size_named(size.value)):
                return known
        elif axis < 0:
            return self._shape_of(x, axis, axis + 1 or None)
        return self._shape_of(x, axis, axis + 1)

    def size_named(self, text: str | None) -> ir.Value | None:
        """The value of a symbolic size by its text, when it is known in this graph."""
        block: Block | None = self
        while block is not None and text is not None:
            if (value := block._sizes.get(text)) is not None:
                return value
            block = block.outer
        return None

    def name_size(self, text: str, value: ir.Value) -> None:
        """Remember the value (int64, shape [1]) of a symbolic size."""
        self._sizes[text] = value

    def size_of(self, x: ir.Value, axis: int) -> ir.Value:
        """The size of an axis as ``x`` has it when the model runs, int64 of shape [1]."""
        return self._shape_of(x, axis, axis + 1)

    def shape(self, x: ir.Value) -> ir.Value:
        """The shape of ``x``, int64 of shape [rank]; a constant when it is known."""
        if x.shape is not None and all(isinstance(size, int) for size in x.shape):
            return self.constant(np.array(x.shape.numpy(), np.int64))
        return self._shape_of(x, 0, None)

    def vector(self, sizes: Iterable[int | ir.Value]) -> ir.Value:
        """Sizes (ints, and int64 values of shape [1]) as one int64 value of shape [n]."""
        parts: list[list[int] | ir.Value] = []
        for size in sizes:
            if isinstance(size, ir.Value):
                parts.append(size)
            elif parts and isinstance(parts[-1], list):
                parts[-1].append(size)
            else:
                parts.append([size])
        if not parts:
            return self.constant(np.zeros(0, np.int64))
        values = [p if isinstance(p, ir.Value) else self.constant(p) for p in parts]
        joined: ir.Value = values[0] if len(values) == 1 else self.Concat(*values, axis=0)
        return joined

    def scalar(self, size: int | ir.Value) -> ir.Value:
        """A size as a value of shape []."""
        if not isinstance(size, ir.Value):
            return self.constant(size)
        if size.shape is not None and len(size.shape) == 0:
            return size
        squeezed: ir.Value = self.Squeeze(size, [0])
        squeezed.meta["number"] = True
        return squeezed

    # Weights and subgraphs ---------------------------------------------------------------------

    def transposed(self, weight: ir.Value) -> ir.Value:
        """A matrix with its two axes swapped.

        A parameter is stored swapped, as a view that is not copied, so that no node is needed. One
        that is tied to another use (an embedding that is also the head) gets a Transpose instead:
        stored in both ways it would take twice its size on disk.
        """
        tensor = weight.const_value
        if isinstance(tensor, Weight) and not tensor.shared:
            swapped: ir.Value | None = weight.meta.get("transposed")
            if swapped is None:
                swapped = tensor.transposed_value(f"{weight.name}.T")
                weight.meta["transposed"] = swapped
            return swapped
        transposed: ir.Value = self.Transpose(weight, perm=[1, 0])
        return transposed

    def inner(self) -> Block:
        """A block for the body of an If, Loop or Scan; it sees what this one has."""
        return Block(self.opset, self.constants, self)

    def graph(
        self, inner: Block, inputs: Sequence[ir.Value], outputs: Sequence[ir.Value], name: str
    ) -> ir.Graph:
        """The body itself, to be given as an attribute."""
        return ir.Graph(
            inputs, outputs, nodes=inner.nodes, opset_imports=dict(self.domains), name=name
        )

    # -------------------------------------------------------------------------------------------

    def _shape_of(self, x: ir.Value, start: int, end: int | None) -> ir.Value:
        key = (id(x), start, -1 if end is None else end)
        block: Block | None = self
        while block is not None:
            if (known := block._shapes.get(key)) is not None:
                return known
            block = block.outer
        value: ir.Value = self.Shape(x, start=start or None, end=end)
        self._shapes[key] = value
        return value


def _kept_apart(b: Block, x: ir.Value, wanted: ir.DataType) -> ir.Value:
    """Return the operand of a Cast, behind a neutral node if onnxruntime would fuse two Casts.

    onnxruntime merges consecutive Casts even if the result differs. It skips the rounding to a
    half before an 8-bit integer (0.9999 becomes 0 instead of 1) and the wrap-around of an int64;
    before 1.26 it also skips the truncation to an integer before a bool (0.3 becomes True).
    """
    inner = x.producer()
    source = inner.inputs[0] if inner is not None and inner.op_type == "Cast" else None
    if source is None or source.dtype is None or x.dtype is None:
        return x
    apart = x
    if wanted == ir.DataType.BOOL and x.dtype.is_integer():
        apart = b.Abs(x)
    elif wanted.is_integer() and source.dtype.is_floating_point():
        if x.dtype.is_floating_point() and x.dtype.bitwidth < source.dtype.bitwidth:
            # onnxruntime has no Max of bfloat16.
            apart = b.Max(b.Cast(x, to=ir.DataType.FLOAT.value))
        elif x.dtype == ir.DataType.INT64:
            apart = b.Max(x)
    return apart


def _not_counted(b: Block, places: ir.Value | None) -> ir.Value | None:
    """Return the indices of a Gather, behind a neutral node if they are a Range.

    onnxruntime writes Gather(x, Range) as a Slice, which leaves out places below 0 and beyond the
    end: these are counted from the end, and refused.
    """
    node = None if places is None else places.producer()
    while node is not None and node.op_type == "Identity" and node.inputs[0] is not None:
        node = node.inputs[0].producer()
    return b.Max(places) if node is not None and node.op_type == "Range" else places


def _number_of(x: ir.Value) -> Any:
    """The content of a constant that this block made."""
    if isinstance(x.const_value, Weight) or x.const_value is None:
        return None
    return x.const_value.numpy()


def _typed(
    b: Block, op_type: str, inputs: Sequence[Any], attributes: dict[str, Any], outputs: int
) -> tuple[list[ir.Value | None], list[ir.DataType | None]]:
    """The inputs as values, attributes as the schema wants them, dtypes of the outputs."""
    known = operator(op_type, b.opset)
    for name in attributes.keys() - known.attributes:
        raise ValueError(f"{op_type} has no attribute {name} in opset {b.opset}")
    for name in attributes.keys() & known.floats:
        value = attributes[name]
        several = isinstance(value, (list, tuple))
        attributes[name] = [float(v) for v in value] if several else float(value)
    by_variable: dict[str | None, ir.DataType | None] = {}
    for index, value in enumerate(inputs):
        if isinstance(value, ir.Value) and value.dtype is not None:
            by_variable.setdefault(known.input_type(index), value.dtype)
    values: list[ir.Value | None] = []
    for index, value in enumerate(inputs):
        if value is None or isinstance(value, ir.Value):
            values.append(value)
            continue
        variable = known.input_type(index)
        if variable is None:
            raise ValueError(f"{op_type} takes {len(known.inputs)} inputs, not {len(inputs)}")
        fixed = known.fixed.get(variable)
        values.append(b.constant(value, fixed or by_variable.get(variable)))
    if op_type == "Cast":
        return values, [ir.DataType(attributes["to"])]
    kinds = [None if value is None else value.dtype for value in values]
    return values, [
        _output_dtype(op_type, attributes, known.output_dtype(i, kinds)) for i in range(outputs)
    ]


def _output_dtype(
    op_type: str, attributes: dict[str, Any], dtype: ir.DataType | None
) -> ir.DataType | None:
    if dtype is not None:
        return dtype
    if op_type in ("ConstantOfShape", "Constant") and "value" in attributes:
        tensor: ir.TensorProtocol = attributes["value"]
        return tensor.dtype
    if "dtype" in attributes:
        return ir.DataType(attributes["dtype"])
    return ir.DataType.FLOAT if op_type == "ConstantOfShape" else None


def _element_type(
    dtype: ir.DataType | torch.dtype | ir.Value | None,
) -> ir.DataType | None:
    if isinstance(dtype, ir.Value):
        return dtype.dtype
    return onnx_dtype(dtype) if isinstance(dtype, torch.dtype) else dtype
