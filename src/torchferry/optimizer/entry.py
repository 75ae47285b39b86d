"""Rewrite a model or a file into the same computation in fewer, faster nodes."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Literal

import onnx_ir as ir

from torchferry.errors import UsageError
from torchferry.graph import io
from torchferry.optimizer.options import OptimizationOptions
from torchferry.optimizer.rule import Rule

__all__ = ["TARGETS", "Target", "optimize"]

Target = Literal["onnx", "onnxruntime"]
TARGETS: tuple[Target, ...] = ("onnx", "onnxruntime")
_PATTERNS = {"onnx": "default", "onnxruntime": "default+onnxruntime"}


def optimize(
    model: ir.Model | str | Path,
    patterns: str | Sequence[str | Rule] | None = "default+onnxruntime",
    *,
    target: Target | None = None,
    constant_folding: bool | Collection[str] = True,
    processor: str = "CPU",
    verifies: bool = False,
    max_iter: int = -1,
    verbose: int = 0,
    dump_applied_patterns: str | Path | None = None,
    onnxruntime: str | None = None,
) -> ir.Model:
    """Rewrite a model without changing what it computes.

    Args:
        model: changed in place; or a ``.onnx`` file, which stays as it is.
        patterns: ``default`` keeps to standard operators and runs everywhere,
            ``default+onnxruntime`` uses onnxruntime's own too; see `OptimizationOptions`.
        target: ``onnx`` or ``onnxruntime``, which stand for these two; instead of ``patterns``.
        constant_folding: compute what depends on no input; or only these operators.
        processor: ``CPU``, ``CUDA`` or ``CPU,CUDA``: where the model will run.
        verifies: check the model after every rewrite.
        max_iter: how often the stages are run; -1 is until nothing changes.
        verbose: 1 logs what was done.
        dump_applied_patterns: a folder for every rewrite, as two small models.
        onnxruntime: the version that will run the model; the installed one when ``None``.

    Returns:
        The model.

    Raises:
        UsageError: an unknown target, pattern, processor or version, or no such file, or no
            such folder can be made.
        RuleBroke: a rewrite made an invalid graph.
    """
    if target is not None:
        if target not in TARGETS:
            raise UsageError(f"unknown target {target!r}: choose one of {', '.join(TARGETS)}")
        patterns = _PATTERNS[target]
    options = OptimizationOptions(
        patterns, constant_folding, processor, verbose, max_iter, verifies, dump_applied_patterns,
        onnxruntime,
    )  # fmt: skip
    return options.apply(io.load(Path(model)) if isinstance(model, (str, Path)) else model)
