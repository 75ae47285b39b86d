"""Where a node of an ONNX graph came from: what the exporter wrote beside it, or in its name.

torchferry and torch.onnx write metadata of the same names; the TorchScript exporter, which optimum
uses, calls nodes after modules: ``/model/layers.0/mlp/MatMul``.
"""

from __future__ import annotations

import ast
import re

import onnx_ir as ir

from torchferry.values.source_line import innermost_place

__all__ = [
    "FX_KEY",
    "all_scopes",
    "by_torch_script",
    "fx_name",
    "fx_of",
    "fx_said",
    "layer_of",
    "line_of",
    "scopes_of",
    "uncast",
]

_FX_NODE = re.compile(r"%(\w+) :.*?\[target=([^\]]+)\]")
FX_KEY = "pkg.torch.onnx.fx_node"
"""Beside a node: the FX node it came from."""

_SCOPES_KEY = "pkg.torch.onnx.name_scopes"
_ROUNDED = (ir.DataType.FLOAT16, ir.DataType.BFLOAT16)
_LINE_KEY = "pkg.torchferry.source_line"
_STACK_KEY = "pkg.torch.onnx.stack_trace"


def _told(node: ir.Node) -> ir.Node:
    """The node that says where one came from; a Cast that rounds what it made says nothing."""
    said = node.metadata_props.keys() & {FX_KEY, _SCOPES_KEY}
    kind = node.attributes.get("to") if node.op_type == "Cast" else None
    rounds = kind is not None and kind.as_int() in _ROUNDED
    before = node.inputs[0].producer() if rounds and node.inputs[0] is not None else None
    return node if said or before is None else before


def uncast(node: ir.Node) -> ir.Node:
    """What a node that says nothing casts, to whatever type; other nodes themselves."""
    while node.op_type == "Cast" and not node.metadata_props.keys() & {FX_KEY, _SCOPES_KEY}:
        before = node.inputs[0].producer() if node.inputs[0] is not None else None
        if before is None:
            break
        node = before
    return node


def scopes_of(node: ir.Node) -> tuple[str, ...]:
    """Paths of the modules an ONNX node stands in, outermost first; the model itself left out."""
    node = _told(node)
    text = node.metadata_props.get(_SCOPES_KEY)
    if text:
        try:
            return tuple(str(path) for path in ast.literal_eval(text)[:-1] if path)
        except (ValueError, SyntaxError):
            return ()
    if _says_modules(node):
        parts = str(node.name).strip("/").split("/")[:-1]
        return tuple(".".join(parts[:count]) for count in range(1, len(parts) + 1))
    return ()


def by_torch_script(graph: ir.Graph) -> bool:
    """Whether nodes are called after modules."""
    return any(_says_modules(node) for node in graph)


def _says_modules(node: ir.Node) -> bool:
    return (node.name or "").startswith("/")


def all_scopes(graph: ir.Graph) -> set[str]:
    """Paths of all modules that nodes of a graph stand in."""
    return {path for node in graph for path in scopes_of(node)}


def layer_of(node: ir.Node) -> str:
    """Path of the innermost module an ONNX node stands in; ``""`` when none is known."""
    return (scopes_of(node) or ("",))[-1]


def line_of(node: ir.Node) -> str:
    """``file:line`` of the user's code that an ONNX node came from; ``""`` when not known."""
    line = node.metadata_props.get(_LINE_KEY)
    if line:
        return line
    return ":".join(innermost_place(node.metadata_props.get(_STACK_KEY)) or ())


def fx_of(text: str) -> tuple[str, str]:
    """Name and target of an FX node in the words of ``Node.format_node``."""
    found = _FX_NODE.match(text)
    return (found[1], found[2]) if found else ("", "")


def fx_said(node: ir.Node) -> tuple[str, str]:
    """Name and target of the FX node that a node itself says it came from; empty if none."""
    return fx_of(node.metadata_props.get(FX_KEY, ""))


def fx_name(node: ir.Node | None) -> str:
    """The FX node that an ONNX node came from."""
    return "" if node is None else fx_said(_told(node))[0]
