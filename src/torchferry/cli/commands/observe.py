"""``torchferry observe``: what a model is given, which dimensions vary and why."""

from __future__ import annotations

from torchferry.cli.options import DtypeOption, InputsOption, ModelArgument, SizesOption
from torchferry.report.model import Report

__all__ = ["observe"]


def observe(
    model: ModelArgument,
    inputs: InputsOption = None,
    sizes: SizesOption = None,
    dtype: DtypeOption = None,
) -> Report:
    """Run MODEL on its inputs and show which dimensions are dynamic, and why.

    Shows every call, the arguments with their dimensions, which arguments are optional and which
    are constants, and Python to paste: inputs of the same kind with dynamic shapes, for
    torch.export.export and for torch.onnx.export.
    """
    from torchferry.exporter.watch import watch
    from torchferry.progress import show_steps

    with show_steps() as begin:
        kind = dtype.value if dtype else None
        return watch(model, inputs=inputs, sizes=sizes, dtype=kind, progress=begin)
