"""Parameters and buffers as ONNX tensors that are views of PyTorch's memory."""

from __future__ import annotations

from typing import Any

import onnx_ir as ir
import torch
from onnx_ir.tensor_adapters import TorchTensor

from torchferry.converter.write.promote import onnx_dtype
from torchferry.seams.pytorch import FakeTensor, unset_fake, version_of

__all__ = ["Weight", "read_marks", "weight_value"]


class Weight(TorchTensor):
    """A view of a parameter, buffer or constant of the program.

    Of a tensor on ``meta`` it has no data: `torchferry.graph.bind_weights` gives it some.

    Attributes:
        shared: whether it must be kept as it lies: another parameter is a view of the same memory
            (tied weights), several nodes use it, or a file of weights holds it.
    """

    def __init__(self, tensor: torch.Tensor, name: str, *, shared: bool = False) -> None:
        super().__init__(tensor, name=name)
        self.shared = shared

    def read_mark(self) -> tuple[Any, ...]:
        """Read what changes when somebody writes to the tensor: PyTorch's count, and some numbers.

        Writes through ``.data`` are not counted, but move all numbers: a step of an optimizer, an
        average of weights.
        """
        tensor: Any = self.raw
        count = 0 if tensor.is_inference() else version_of(tensor)
        if count and version_of(tensor) != count:  # nobody counts
            count = 0
        if tensor.is_meta or not tensor.numel():
            return (count,)
        places = [tuple(at * (n - 1) // 2 for n in tensor.shape) for at in range(3)]
        return (count, *(str(tensor[place].item()) for place in places))

    def transposed_value(self, name: str) -> ir.Value:
        """An initializer that holds the matrix with its axes swapped; nothing is copied."""
        tensor: Any = self.raw
        return weight_value(tensor.t(), name)


def weight_value(tensor: torch.Tensor, name: str, *, shared: bool = False) -> ir.Value:
    """An initializer for a tensor; complex numbers become a last axis of two.

    Args:
        tensor: of a fake tensor, or one on ``meta``, the initializer has no data, and is kept as
            it lies, since whoever binds it has the tensor and not its transpose.
        name: of the initializer.
        shared: see `Weight`.
    """
    tensor = tensor.detach()
    if isinstance(tensor, FakeTensor):
        with unset_fake():
            tensor = torch.empty_strided(
                tuple(tensor.shape), tensor.stride(), dtype=tensor.dtype, device="meta"
            )
    shared = shared or tensor.is_meta
    complex_numbers = tensor.is_complex()
    if complex_numbers:
        tensor = torch.view_as_real(tensor.resolve_conj())
    value = ir.Value(
        name=name,
        const_value=Weight(tensor, name, shared=shared),
        shape=ir.Shape(tensor.shape),
        type=ir.TensorType(onnx_dtype(tensor.dtype)),
    )
    if complex_numbers:
        value.meta["complex"] = True
    return value


def read_marks(model: ir.Model) -> dict[str, tuple[Any, ...]]:
    """Read the marks of all initializers that are views of PyTorch's tensors.

    Args:
        model: as the converter made it, or the optimizer left it.
    """
    tensors = {name: value.const_value for name, value in model.graph.initializers.items()}
    return {name: one.read_mark() for name, one in tensors.items() if isinstance(one, Weight)}
