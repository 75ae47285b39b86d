"""``torch.nn.functional.linear_cross_entropy``: a linear layer and its cross entropy, in chunks.

The chunks only save PyTorch memory; here it is the product and the loss. Registered by name:
torch defines these operators when the function is first used.
Source: torch/nn/modules/linear_cross_entropy.py of torch 2.13.
"""

from __future__ import annotations

from typing import Any

import onnx_ir as ir
import torch

from torchferry.converter.block import Block
from torchferry.converter.lowering import lowers
from torchferry.converter.ops.loss.classification import cross_entropy_loss
from torchferry.converter.ops.network.matrix import linear

__all__: list[str] = []

_REDUCTIONS = {"none": 0, "mean": 1, "sum": 2}


@lowers("torch_nn::_linear_cross_entropy_batch_chunked")
def _linear_cross_entropy_batch_chunked(
    b: Block,
    x: ir.Value,
    linear_weight: ir.Value,
    target: ir.Value,
    linear_bias: ir.Value | None,
    weight: ir.Value | None,
    reduction: str,
    ignore_index: Any,
    label_smoothing: float,
    batch_chunk_size: Any,
    acc_policy: str,
    acc_dtype: torch.dtype,
    allow_retain_graph: bool,
    compute_input_grad: bool,
    compute_linear_weight_grad: bool,
    compute_linear_bias_grad: bool,
) -> tuple[ir.Value, None, None, None]:
    if compute_input_grad or compute_linear_weight_grad or compute_linear_bias_grad:
        raise ValueError("it computes gradients, export it under torch.no_grad()")
    scores = linear(b, x, linear_weight, linear_bias)
    loss = cross_entropy_loss(
        b, scores, target, weight, _REDUCTIONS[reduction], ignore_index, label_smoothing
    )
    return loss, None, None, None


@lowers("torch_nn::_linear_cross_entropy_batch_chunked_no_reduction")
def _linear_cross_entropy_batch_chunked_no_reduction(
    b: Block,
    x: ir.Value,
    linear_weight: ir.Value,
    target: ir.Value,
    linear_bias: ir.Value | None,
    weight: ir.Value | None,
    ignore_index: Any,
    batch_chunk_size: Any,
    acc_policy: str,
    acc_dtype: torch.dtype,
) -> ir.Value:
    scores = linear(b, x, linear_weight, linear_bias)
    return cross_entropy_loss(b, scores, target, weight, _REDUCTIONS["none"], ignore_index)
