"""What is written in the boxes of a diagram: types, weights, constants and attributes."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from typing import Any

import onnx
import onnx_ir as ir

__all__ = ["clean", "constant_lines", "constant_text", "printable", "type_text", "wrapped"]

_VALUES = 6  # elements of a constant that are written out
_LONGEST = 44  # characters of a line
_MOST_LINES = 3  # that one weight, attribute or type takes


def constant_lines(node: ir.Node) -> Iterator[str]:
    """Weights and constants among the inputs of a node, then its attributes; no subgraphs."""
    names = _input_names(node)
    for index, value in enumerate(node.inputs):
        text = None if value is None else constant_text(value)
        if text is not None:
            yield f"{names[index] if index < len(names) else index} = {text}"
    for name, attribute in node.attributes.items():
        text = _attribute_text(attribute)
        if text:
            yield f"{name} = {text}"


def _input_names(node: ir.Node) -> list[str]:
    try:
        schema = onnx.defs.get_schema(node.op_type, domain=node.domain)
    except onnx.defs.SchemaError:
        return []
    return [i.name for i in schema.inputs if i.option != i.option.Variadic]


def constant_text(value: ir.Value) -> str | None:
    """What stands for a weight or a constant; ``None`` for what flows."""
    tensor = value.const_value if value.is_initializer() else None
    producer = value.producer()
    if producer is not None and producer.op_type == "Constant" and not value.is_graph_output():
        (attribute,) = producer.attributes.values()
        if attribute.is_ref() or attribute.type != ir.AttributeType.TENSOR:
            return _attribute_text(attribute)
        tensor = attribute.value  # not as_tensor(), which refuses texts
    elif not value.is_initializer():
        return None
    text = "" if tensor is None else _values(tensor)
    return text or f"{value.name} {type_text(value)}".strip()


def _values(tensor: ir.TensorProtocol) -> str:
    """The elements of a small tensor that is at hand, else the type."""
    if tensor.size > _VALUES or isinstance(tensor, ir.ExternalTensor):
        named = f"{tensor.name} " if tensor.name else ""
        return f"{named}{tensor.dtype.short_name()}{_shape_text(tensor.shape)}"
    try:
        return _nested(tensor.numpy().tolist())
    except (AssertionError, LookupError, TypeError, ValueError):  # a file need not be whole
        return "damaged"


def _nested(value: Any) -> str:
    if isinstance(value, list):
        return f"[{', '.join(map(_nested, value))}]"
    if isinstance(value, bytes):
        return repr(value.decode("utf-8", "replace"))
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def _attribute_text(attribute: ir.Attr) -> str:
    if attribute.is_ref():
        return f"@{attribute.ref_attr_name}"
    match attribute.type:
        case ir.AttributeType.GRAPH | ir.AttributeType.GRAPHS:
            return ""
        case ir.AttributeType.TENSOR:
            return _values(attribute.value)
        case ir.AttributeType.FLOAT | ir.AttributeType.INT:
            return _nested(attribute.value)
        case ir.AttributeType.STRING:
            return repr(attribute.as_string())
    value = attribute.value
    if isinstance(value, list | tuple):
        more = ", …" if len(value) > _VALUES else ""
        return f"[{', '.join(_nested(item) for item in value[:_VALUES])}{more}]"
    return str(value)


def type_text(value: ir.Value) -> str:
    """The dtype and shape of a value: ``f32[batch, 64]``; nothing when they are not known."""
    type_ = value.type
    if type_ is None:
        return ""
    if not isinstance(type_, ir.TensorType):
        return str(type_)
    return f"{type_.dtype.short_name()}{_shape_text(value.shape)}"


def _shape_text(shape: Any) -> str:
    if shape is None:
        return ""
    sizes = [size if isinstance(size, int) else size.value or "?" for size in shape]
    return f"[{', '.join(map(str, sizes))}]"


def wrapped(line: str) -> list[str]:
    """A line as the lines of a box, cut after the third."""
    return textwrap.wrap(
        printable(line), _LONGEST, subsequent_indent="  ", max_lines=_MOST_LINES, placeholder=" …"
    )


def printable(text: str) -> str:
    """One line without anything that a file of text cannot hold.

    >>> printable(f"a{chr(10)}b{chr(7)}") == f"a b{chr(0xFFFD)}"
    True
    """
    return "".join(
        char if char.isprintable() else " " if char.isspace() else "\N{REPLACEMENT CHARACTER}"
        for char in text
    )


def clean(text: str) -> str:
    """One line, cut to a length that fits a box.

    >>> clean("name " * 10)
    'name name name name name name name name nam…'
    """
    shown = printable(text[: 2 * _LONGEST])
    return shown if len(shown) <= _LONGEST else f"{shown[: _LONGEST - 1]}…"
