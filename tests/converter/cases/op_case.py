"""One operator, exported at one size and compared with eager at others."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import onnx_ir as ir
import onnxruntime
import torch
from torch.utils import _pytree as pytree

from torchferry.converter.translate import translate
from torchferry.graph.runtime import EMPTY_TENSORS
from torchferry.runner import to_tensor
from versions import can, kernels

__all__ = ["check", "export", "run"]

OBLIVIOUS = torch.fx.experimental._config.patch(backed_size_oblivious=True)
TOLERANCE = {
    torch.float32: 1e-5, torch.float64: 1e-6, torch.float16: 4e-3, torch.bfloat16: 3e-2,
    torch.complex64: 1e-5, torch.complex128: 1e-6,
}  # fmt: skip


class Call(torch.nn.Module):
    """A function as a module."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *tensors: Any) -> Any:
        return self.function(*tensors)


def export(
    function: Callable[..., Any] | torch.nn.Module, *sets: Sequence[torch.Tensor]
) -> torch.export.ExportedProgram:
    """The program of the first inputs; the axes in which the others differ are dynamic."""
    first, *others = sets
    axes = tuple(
        {
            axis: torch.export.Dim.DYNAMIC
            for axis in range(tensor.ndim)
            if any(other[place].shape[axis] != tensor.shape[axis] for other in others)
        }
        for place, tensor in enumerate(first)
    )
    module = function if isinstance(function, torch.nn.Module) else Call(function)
    shapes = (axes,) if not isinstance(function, torch.nn.Module) else axes
    with OBLIVIOUS, torch.no_grad():
        return torch.export.export(module, tuple(first), dynamic_shapes=shapes, strict=False)


def start(model: ir.Model) -> onnxruntime.InferenceSession:
    """A session of onnxruntime with one thread."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 3
    with kernels():
        return onnxruntime.InferenceSession(
            ir.to_proto(model).SerializeToString(), options, providers=["CPUExecutionProvider"]
        )


def run(
    model: ir.Model | onnxruntime.InferenceSession, inputs: Sequence[torch.Tensor]
) -> list[torch.Tensor]:
    """The outputs of a model in onnxruntime."""
    session = start(model) if isinstance(model, ir.Model) else model
    given = [t.detach() for t in inputs]
    feeds = {
        value.name: onnxruntime.OrtValue.ortvalue_from_numpy_with_onnx_type(*_plain(t))
        for value, t in zip(session.get_inputs(), given, strict=True)
    }
    names = [value.name for value in session.get_outputs()]
    outputs = session.run_with_ort_values(names, feeds)
    return [to_tensor(value) for value in outputs]


def check(
    function: Callable[..., Any] | torch.nn.Module,
    *sets: Sequence[torch.Tensor],
    target: Any = None,
    opset: int = 20,
    tolerance: float | None = None,
    exact: bool = False,
) -> ir.Model:
    """Compare a function with its ONNX model on every set of inputs.

    Args:
        function: of tensors only.
        sets: inputs; the first is exported, the axes in which the others differ are dynamic.
        target: the overload that must be in the program, so that the case tests what it says.
        opset: what is written.
        tolerance: absolute and relative; by the dtype of each output when None.
        exact: no difference at all.
    """
    program = export(function, *sets)
    if target is not None:
        targets = {node.target for node in program.graph.nodes}
        assert target in targets, f"{target} is not among {targets}"
    model = translate(program, opset)
    session = start(model)
    for inputs in sets:
        if not can(EMPTY_TENSORS) and not all(tensor.numel() for tensor in inputs):
            continue
        with torch.no_grad():
            expected = pytree.tree_leaves(function(*(t.clone() for t in inputs)))
        got = run(session, inputs)
        tensors = [e if isinstance(e, torch.Tensor) else torch.tensor(e) for e in expected]
        assert len(got) == len(tensors)
        for value, other in zip(got, tensors, strict=True):
            mine = _complex(value) if other.dtype.is_complex else value
            assert mine.dtype == other.dtype
            limit = 0.0 if exact else tolerance or TOLERANCE.get(mine.dtype, 0.0)
            torch.testing.assert_close(
                mine, other.detach(), rtol=limit, atol=limit, equal_nan=True
            )
    return model


def _plain(tensor: torch.Tensor) -> tuple[Any, int]:
    if tensor.dtype.is_complex:
        tensor = torch.view_as_real(tensor.resolve_conj())
    element = ir.tensor_adapters.from_torch_dtype(tensor.dtype)
    if tensor.dtype == torch.bfloat16:
        return tensor.contiguous().view(torch.uint16).numpy(), element.value
    return tensor.contiguous().resolve_neg().numpy(), element.value


def _complex(pairs: torch.Tensor) -> torch.Tensor:
    # numpy's strides of an empty array are not those that view_as_complex wants
    return torch.view_as_complex(torch.empty(pairs.shape, dtype=pairs.dtype).copy_(pairs))
