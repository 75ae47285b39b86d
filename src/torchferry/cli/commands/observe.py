"""``torchferry observe``: what a model is given, which dimensions vary and why."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from torchferry.report.model import Report

__all__ = ["observe"]


class _Dtype(StrEnum):
    fp32 = "fp32"
    fp16 = "fp16"
    bf16 = "bf16"


def observe(
    model: Annotated[
        str,
        typer.Argument(
            metavar="MODEL",
            help="zoo:NAME, a Hugging Face folder, package.module:factory, or a .pt2 file.",
        ),
    ],
    inputs: Annotated[
        str | None,
        typer.Option(
            metavar="FILE.py:function",
            help="A function that returns two or more sets of inputs: tuples, dicts or both.",
        ),
    ] = None,
    dtype: Annotated[
        _Dtype | None, typer.Option(help="Convert the model first.  [default: as it is]")
    ] = None,
) -> Report:
    """Run MODEL on its inputs and show which dimensions are dynamic, and why.

    Shows every call, the arguments with their dimensions, which arguments are optional and which
    are constants, and Python to paste: inputs of the same kind with dynamic shapes, for
    torch.export.export and for torch.onnx.export.
    """
    from torchferry.cli.progress import progress
    from torchferry.exporter.watch import watch

    with progress() as begin:
        return watch(model, inputs=inputs, dtype=dtype.value if dtype else None, progress=begin)
