"""One element of an element-wise operator, in C."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import onnx_ir as ir

from torchferry.optimizer import facts
from torchferry.optimizer.rule import Declined, require

__all__ = ["C_TYPES", "Element", "dtype_of", "element", "is_element_wise", "literal", "operands"]

C_TYPES = {
    ir.DataType.FLOAT: "float",
    ir.DataType.INT64: "int64_t",
    ir.DataType.INT32: "int32_t",
    ir.DataType.BOOL: "uint8_t",
}
"""The element types that kernels are written for."""

_FLOAT = ir.DataType.FLOAT
_MS = "com.microsoft"
_POWERS = {2: "{0} * {0}", 3: "{0} * {0} * {0}", 1: "{0}", -1: "1.0f / {0}"}


@dataclass(frozen=True)
class Element:
    """How an element of a result is computed.

    Attributes:
        text: a C expression.
        cost: in additions, roughly.
    """

    text: str
    cost: float


# Formats of the operands' names, and what they cost: any element type but bool, or bool alone.
_NUMBERS: dict[str, tuple[str, float]] = {
    "Abs": ("{0} < 0 ? -{0} : {0}", 1),
    "Neg": ("-{0}", 1),
    "Add": ("{0} + {1}", 1),
    "Sub": ("{0} - {1}", 1),
    "Mul": ("{0} * {1}", 1),
    "Relu": ("{0} < 0 ? 0 : {0}", 1),
    "Less": ("{0} < {1}", 1),
    "LessOrEqual": ("{0} <= {1}", 1),
    "Greater": ("{0} > {1}", 1),
    "GreaterOrEqual": ("{0} >= {1}", 1),
}
_BOOLEANS: dict[str, tuple[str, float]] = {
    "And": ("{0} & {1}", 1),
    "Or": ("{0} | {1}", 1),
    "Xor": ("{0} ^ {1}", 1),
    "Not": ("!{0}", 1),
}
_ANY: dict[str, tuple[str, float]] = {
    "Equal": ("{0} == {1}", 1),
    "Where": ("{0} ? {1} : {2}", 1),
}
_FLOATS: dict[str, tuple[str, float]] = {
    "Abs": ("__builtin_fabsf({0})", 1),
    "Ceil": ("__builtin_ceilf({0})", 1),
    "Div": ("{0} / {1}", 4),
    "Erf": ("erf_float({0})", 20),
    "Exp": ("exp_float({0})", 10),
    "Floor": ("__builtin_floorf({0})", 1),
    "HardSwish": ("{0} * hard_sigmoid({0}, 0x1.555556p-3f, 0.5f)", 4),
    "IsNaN": ("{0} != {0}", 1),
    "PRelu": ("{0} < 0 ? {0} * {1} : {0}", 2),
    "Reciprocal": ("1.0f / {0}", 4),
    "Round": ("__builtin_rintf({0})", 1),
    "Sigmoid": ("sigmoid_float({0})", 14),
    "Sqrt": ("__builtin_sqrtf({0})", 4),
    "Tanh": ("tanh_float({0})", 20),
}

Special = Callable[[ir.Node, Sequence[str]], Element]


def _attribute(node: ir.Node, name: str, default: float) -> str:
    return literal(float(facts.attribute(node, name, default)), _FLOAT)


def _cast(node: ir.Node, names: Sequence[str]) -> Element:
    to = dtype_of(node.outputs[0])
    if to == ir.DataType.BOOL:
        return Element(f"{names[0]} != 0", 1)
    # What lies outside of the type is up to the processor, as it is in onnxruntime.
    return Element(f"({C_TYPES[to]}){names[0]}", 1)


def _clip(node: ir.Node, names: Sequence[str]) -> Element:
    text = names[0]
    for index, sign in ((1, "<"), (2, ">")):
        if index < len(node.inputs) and node.inputs[index] is not None:
            bound = literal(facts.number(node.inputs[index]), dtype_of(node.inputs[0]))
            text = f"({text} {sign} {bound} ? {bound} : {text})"
    require("min" not in node.attributes and "max" not in node.attributes, "an old Clip")
    return Element(text, 2)


def _power(node: ir.Node, names: Sequence[str]) -> Element:
    require(dtype_of(node.inputs[0]) == _FLOAT, "the power of integers")
    exponent = facts.number(node.inputs[1])
    require(exponent in _POWERS, f"the power {exponent}")
    return Element(_POWERS[exponent].format(names[0]), 4)


def _largest(sign: str) -> Special:
    def make(node: ir.Node, names: Sequence[str]) -> Element:
        kind = C_TYPES[dtype_of(node.outputs[0])]
        # One step an input, as an expression of all would grow with each; NaN wins.
        steps = "".join(f"m = {x} {sign} m || {x} != {x} ? {x} : m; " for x in names[1:])
        return Element(f"({{ {kind} m = {names[0]}; {steps}m; }})", 2.0 * len(names))

    return make


def _sum(node: ir.Node, names: Sequence[str]) -> Element:
    return Element(" + ".join(names), float(len(node.inputs)))


def _gelu(node: ir.Node, names: Sequence[str]) -> Element:
    tanh = facts.attribute(node, "approximate", "none") == "tanh" or node.op_type == "FastGelu"
    given = " + ".join(names)  # a bias
    return Element(f"gelu_tanh_float({given})" if tanh else f"gelu_float({given})", 24)


def _swish(node: ir.Node, names: Sequence[str]) -> Element:
    alpha = _attribute(node, "alpha", 1.702 if node.op_type == "QuickGelu" else 1.0)
    return Element(f"{names[0]} * sigmoid_float({alpha} * {names[0]})", 16)


def _leaky_relu(node: ir.Node, names: Sequence[str]) -> Element:
    slope = _attribute(node, "alpha", 0.01)
    return Element("{0} < 0 ? {0} * {1} : {0}".format(names[0], slope), 2)


def _elu(node: ir.Node, names: Sequence[str]) -> Element:
    alpha = _attribute(node, "alpha", 1.0)
    return Element("{0} < 0 ? {1} * (exp_float({0}) - 1.0f) : {0}".format(names[0], alpha), 12)


def _hard_sigmoid(node: ir.Node, names: Sequence[str]) -> Element:
    alpha, beta = _attribute(node, "alpha", 0.2), _attribute(node, "beta", 0.5)
    return Element(f"hard_sigmoid({names[0]}, {alpha}, {beta})", 3)


_SPECIAL: dict[tuple[str, str], Special] = {
    ("", "Cast"): _cast,
    ("", "Clip"): _clip,
    ("", "Elu"): _elu,
    ("", "Gelu"): _gelu,
    ("", "HardSigmoid"): _hard_sigmoid,
    ("", "LeakyRelu"): _leaky_relu,
    ("", "Max"): _largest(">"),
    ("", "Min"): _largest("<"),
    ("", "Pow"): _power,
    ("", "Sum"): _sum,
    ("", "Swish"): _swish,
    (_MS, "BiasGelu"): _gelu,
    (_MS, "FastGelu"): _gelu,
    (_MS, "Gelu"): _gelu,
    (_MS, "QuickGelu"): _swish,
}
_FLOAT_ONLY = {"Elu", "Gelu", "HardSigmoid", "LeakyRelu", "Swish", "BiasGelu", "FastGelu",
               "QuickGelu"}  # fmt: skip
_SETTINGS = {("", "Pow"): (1,), ("", "Clip"): (1, 2)}
"""Inputs that are read as the kernel is written, and not by it."""
_TABLES = (_NUMBERS, _BOOLEANS, _ANY, _FLOATS)


def is_element_wise(node: ir.Node) -> bool:
    """Whether there may be a C expression for an operator."""
    name = (node.domain, node.op_type)
    return name in _SPECIAL or (not node.domain and any(node.op_type in t for t in _TABLES))


def operands(node: ir.Node) -> list[ir.Value]:
    """The inputs whose elements the expression is made of.

    Raises:
        Declined: one that is not at the end is left out.
    """
    settings = _SETTINGS.get((node.domain, node.op_type), ())
    found = [value for i, value in enumerate(node.inputs) if i not in settings]
    while found and found[-1] is None:
        found.pop()
    kept = [value for value in found if value is not None]
    require(len(kept) == len(found) and bool(kept), "an input is left out")
    return kept


def element(node: ir.Node, names: Sequence[str]) -> Element:
    """How an element of the result of a node is computed.

    Args:
        node: an element-wise operator; the types of its values are known.
        names: C names of an element of each of its `operands`.

    Raises:
        Declined: there is no expression for it; says why.
    """
    types = {dtype_of(value) for value in operands(node)}
    require(types <= C_TYPES.keys() and dtype_of(node.outputs[0]) in C_TYPES, "an element type")
    special = _SPECIAL.get((node.domain, node.op_type))
    if special is not None:
        numbers = ir.DataType.BOOL not in types
        floats = types == {_FLOAT} or node.op_type not in _FLOAT_ONLY
        require(node.op_type == "Cast" or (numbers and floats), "an element type")
        return special(node, names)
    tables: list[dict[str, tuple[str, float]]] = [_ANY]
    if types == {_FLOAT}:
        tables = [_ANY, _FLOATS, _NUMBERS]
    elif types == {ir.DataType.BOOL}:
        tables = [_ANY, _BOOLEANS]
    elif ir.DataType.BOOL not in types:
        tables = [_ANY, _NUMBERS]
    for table in tables:
        if node.op_type in table:
            text, cost = table[node.op_type]
            return Element(text.format(*names), cost)
    raise Declined(f"{node.op_type} of these element types")


def literal(number: Any, dtype: ir.DataType) -> str:
    """A number in C, exactly.

    >>> literal(0.1, ir.DataType.FLOAT), literal(-3, ir.DataType.INT64)
    ('0x1.99999a0000000p-4f', '(-INT64_C(3))')
    """
    if dtype == _FLOAT:
        value = float(_FLOAT.numpy().type(number))
        if math.isnan(value):
            return '__builtin_nanf("")'
        if math.isinf(value):
            return "__builtin_inff()" if value > 0 else "(-__builtin_inff())"
        return f"{value.hex()}f" if value >= 0 else f"({value.hex()}f)"
    if dtype == ir.DataType.BOOL:
        return str(int(bool(number)))
    whole = int(number)
    require(whole > -(2**63), "the smallest integer has no literal in C")
    return f"INT64_C({whole})" if whole >= 0 else f"(-INT64_C({-whole}))"


def dtype_of(value: ir.Value | None) -> ir.DataType:
    """The element type of a value.

    Raises:
        Declined: it is not known.
    """
    if value is None or value.dtype is None:
        raise Declined("an element type is not known")
    return value.dtype
