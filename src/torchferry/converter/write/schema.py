"""What ONNX's operator schemas say about dtypes, remembered in a form that is quick to ask."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import onnx
import onnx_ir as ir

__all__ = ["Operator", "operator"]

_TENSOR = {f"tensor({name})": ir.DataType[member] for name, member in {
    "float": "FLOAT", "uint8": "UINT8", "int8": "INT8", "uint16": "UINT16", "int16": "INT16",
    "int32": "INT32", "int64": "INT64", "string": "STRING", "bool": "BOOL",
    "float16": "FLOAT16", "double": "DOUBLE", "uint32": "UINT32", "uint64": "UINT64",
    "bfloat16": "BFLOAT16", "complex64": "COMPLEX64", "complex128": "COMPLEX128",
}.items()}  # fmt: skip


@dataclass(frozen=True)
class Operator:
    """One operator of an opset.

    Attributes:
        inputs: per formal input its type variable (``T``) or fixed type (``tensor(int64)``).
        variadic: whether the last formal input takes any number of values.
        outputs: the same for outputs.
        fixed: the dtype of each type variable or type that allows only one.
        floats: names of the attributes that are floats or lists of them.
        attributes: names of all attributes.
    """

    inputs: tuple[str, ...]
    variadic: bool
    outputs: tuple[str, ...]
    fixed: dict[str, ir.DataType]
    floats: frozenset[str]
    attributes: frozenset[str]

    def input_type(self, index: int) -> str | None:
        """The type variable of an actual input; ``None`` when the operator takes fewer."""
        if index < len(self.inputs):
            return self.inputs[index]
        return self.inputs[-1] if self.variadic and self.inputs else None

    def output_dtype(self, index: int, inputs: list[ir.DataType | None]) -> ir.DataType | None:
        """The dtype of an output, as far as the types of the inputs decide it."""
        if index >= len(self.outputs):
            return None
        wanted = self.outputs[index]
        if wanted in self.fixed:
            return self.fixed[wanted]
        for position, dtype in enumerate(inputs):
            if dtype is not None and self.input_type(position) == wanted:
                return dtype
        return None


@cache
def operator(op_type: str, opset: int) -> Operator:
    """The operator of ONNX's default domain.

    Raises:
        ValueError: the opset has no such operator.
    """
    try:
        schema = onnx.defs.get_schema(op_type, opset)
    except onnx.defs.SchemaError as error:
        raise ValueError(f"opset {opset} has no operator {op_type}") from error
    fixed = {
        constraint.type_param_str: _TENSOR[constraint.allowed_type_strs[0]]
        for constraint in schema.type_constraints
        if len(constraint.allowed_type_strs) == 1 and constraint.allowed_type_strs[0] in _TENSOR
    }
    kinds = onnx.defs.OpSchema
    variadic = kinds.FormalParameterOption.Variadic
    return Operator(
        tuple(formal.type_str for formal in schema.inputs),
        bool(schema.inputs) and schema.inputs[-1].option == variadic,
        tuple(formal.type_str for formal in schema.outputs),
        _TENSOR | fixed,
        frozenset(
            name
            for name, attribute in schema.attributes.items()
            if attribute.type in (kinds.AttrType.FLOAT, kinds.AttrType.FLOATS)
        ),
        frozenset(schema.attributes),
    )
