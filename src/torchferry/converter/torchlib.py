"""The one seam through which onnxscript's lowerings serve what we have not written."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import onnx_ir as ir
import torch
from torch import fx

from torchferry.converter.write.shape import infer_shape
from torchferry.seams.torch_onnx import (
    dispatch,
    has_lowering,
    new_opset,
    new_recorder,
    recorded_by,
    stand_in,
)

if TYPE_CHECKING:
    from torchferry.converter.driver import Scope

__all__ = ["borrowed", "translate"]


def borrowed(target: Any) -> bool:
    """Whether onnxscript has a lowering for an overload."""
    return has_lowering(target)


def translate(scope: Scope, node: fx.Node) -> Any:
    """Write one node with onnxscript's lowering.

    Raises:
        ValueError: it has none that fits, or it would need a function of its own.
    """
    function, message = dispatch(node)
    if function is None:
        raise ValueError(_reason(node, message))
    opset = new_opset(min(scope.block.opset, _NEWEST))
    recorder = new_recorder(opset)
    stand_ins = _StandIns(opset)
    args = [stand_ins.of(_argument(scope, item)) for item in node.args]
    kwargs = {key: stand_ins.of(_argument(scope, item)) for key, item in node.kwargs.items()}
    if kwargs.get("dtype", ...) is None:
        kwargs["dtype"] = -1
    with recorded_by(recorder):
        result = function(*args, **kwargs)
    if recorder.functions:
        raise ValueError("onnxscript's lowering needs local functions, which are not inlined")
    for made in recorder.nodes:
        for index, value in enumerate(made.inputs):
            made.replace_input_with(index, stand_ins.original(value))
        made.version = None
        infer_shape(made)  # for the driver to compare with what torch.export found
    scope.block.nodes.extend(recorder.nodes)
    results = result if isinstance(result, (list, tuple)) else [result]
    originals = [stand_ins.original(value) for value in results]
    example = node.meta.get("val")
    if isinstance(example, (list, tuple)) and not isinstance(result, (list, tuple)):
        sequence = originals[0]  # ONNX's own kind of list
        return [scope.block.SequenceAt(sequence, index) for index in range(len(example))]
    return originals if isinstance(result, (list, tuple)) else originals[0]


def _reason(node: fx.Node, message: str) -> str:
    tensors = [one.meta.get("val") for one in (node, *node.all_input_nodes)]
    if any(isinstance(t, torch.Tensor) and t.is_complex() for t in tensors):
        return (
            "there is no lowering for complex numbers: compute with the parts that "
            "torch.view_as_real gives, or write one with @torchferry.lowers(..., complex=True)"
        )
    return f"there is no lowering for it, and onnxscript's do not fit: {message}"


class _StandIns:
    """onnxscript's lowerings write ``x * y``, which only its own class of values understands."""

    def __init__(self, opset: Any) -> None:
        self._opset = opset
        self._originals: dict[ir.Value, ir.Value] = {}

    def of(self, item: Any) -> Any:
        if isinstance(item, list):
            return [self.of(part) for part in item]
        if not isinstance(item, ir.Value):
            return item
        other = stand_in(item, self._opset)
        self._originals[other] = item
        return other

    def original(self, value: Any) -> Any:
        return self._originals.get(value, value) if isinstance(value, ir.Value) else value


_NEWEST = 23  # onnxscript's lowerings are written for opset 18; what is newer is compatible so far


def _argument(scope: Scope, item: Any) -> Any:
    """What onnxscript's lowerings are called with: sizes are scalars, dtypes numbers."""
    if isinstance(item, fx.Node):
        value = scope.resolve(item)
        if isinstance(value, ir.Value) and not isinstance(item.meta.get("val"), torch.Tensor):
            return scope.block.scalar(value)
        return value
    if isinstance(item, (list, tuple)):
        return [_argument(scope, part) for part in item]
    if isinstance(item, torch.dtype):
        from torchferry.converter.write.promote import onnx_dtype

        return onnx_dtype(item)
    if isinstance(item, (torch.device, torch.layout, torch.memory_format)):
        return str(item)
    return item
