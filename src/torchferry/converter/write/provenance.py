"""Where each ONNX node came from, in metadata that viewers read and in ours."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import onnx_ir as ir
import torch

from torchferry.values.source_line import user_line

__all__ = ["SOURCE_KEY", "module_of", "provenance", "tell_origin"]

SOURCE_KEY = "pkg.torchferry.source_line"
_STACK_KEY = "pkg.torch.onnx.stack_trace"


def module_of(node: torch.fx.Node) -> str | None:
    """Path and class of the module an FX node stands in: ``decoder.norm (LayerNorm)``."""
    stack = list((node.meta.get("nn_module_stack") or {}).values())
    if not stack:
        return None
    path, kind = stack[-1]
    return f"{path or 'the model'} ({_class_name(kind).rsplit('.', 1)[-1]})"


def provenance(node: torch.fx.Node) -> dict[str, str]:
    """The metadata of the ONNX nodes that an FX node became.

    The keys ``namespace`` and ``pkg.torch.onnx.*`` and their forms are those of torch.onnx, which
    viewers read; the source line is ours.
    """
    stack = (node.meta.get("nn_module_stack") or {}).values()
    scopes = [(str(path), _class_name(kind)) for path, kind in stack]
    scopes.append((node.name, str(node.target)))
    said = {
        "namespace": "/".join(f"{path}: {kind}" for path, kind in scopes),
        "pkg.torch.onnx.class_hierarchy": repr([kind for _, kind in scopes]),
        "pkg.torch.onnx.name_scopes": repr([path for path, _ in scopes]),
        "pkg.torch.onnx.fx_node": str(node.format_node()),
        _STACK_KEY: node.stack_trace or "",
    }
    line = user_line(node.stack_trace)
    return said | {SOURCE_KEY: line} if line else said


def tell_origin(made: Sequence[ir.Node], node: torch.fx.Node) -> None:
    """Give the origin of an FX node to the ONNX nodes that it became, unless they have one."""
    said = provenance(node) if made else {}
    for one in made:
        if not one.metadata_props:  # those of a body that was written in place have theirs
            one.metadata_props.update(said)


def _class_name(kind: Any) -> str:
    return kind if isinstance(kind, str) else f"{kind.__module__}.{kind.__qualname__}"
