"""``torchferry export``: the whole walk, from a model to a verified folder."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from torchferry.cli.options import (
    BudgetOption,
    DtypeOption,
    InputsOption,
    ModelArgument,
    RepeatOption,
    RewriteOption,
    RuntimeOption,
    SizesOption,
    StateChoice,
    StateOption,
)
from torchferry.report.model import Report

__all__ = ["export"]


class _Target(StrEnum):
    onnx = "onnx"
    onnxruntime = "onnxruntime"


class _Exporter(StrEnum):
    to_onnx = "to_onnx"
    onnx_dynamo = "onnx_dynamo"


class _Weights(StrEnum):
    copy = "copy"
    reference = "reference"


_TargetOption = Annotated[
    _Target, typer.Option(help="Standard operators, or onnxruntime's fused ones too.")
]
_OpsetOption = Annotated[
    int | None, typer.Option(metavar="N", help="ONNX operator set.  [default: 20]")
]
_ExporterOption = Annotated[
    _Exporter, typer.Option(help="Ours, or torch.onnx.export as it stands.")
]
_WeightsOption = Annotated[
    _Weights,
    typer.Option(
        help="Copy the weights, or refer to the safetensors files of a Hugging Face folder, which "
        "get a second name (a hard link) in OUT."
    ),
]


class _Verify(StrEnum):
    auto = "auto"
    whole = "whole"
    layers = "layers"


_VerifyOption = Annotated[
    _Verify,
    typer.Option(
        help="Compare whole models, or a layer at a time, each kind of layer once: it takes the "
        "memory of a layer. auto: by layers if a whole session may not fit."
    ),
]
_UnverifiedOption = Annotated[
    bool, typer.Option("--no-verify", help="Only export the model: nothing is run or compared.")
]

_OutOption = Annotated[
    Path | None,
    typer.Option(
        "-o", "--output", metavar="OUT", help="The folder to write.  [default: required]"
    ),
]
_ForceOption = Annotated[
    bool, typer.Option("--force", help="Replace OUT if an earlier export wrote it.")
]
_CheckOption = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help="Export nothing: compare FILE, an earlier export of MODEL, with MODEL as it is now.",
    ),
]
_StrictOption = Annotated[
    bool,
    typer.Option("--strict", help="Fail if the ONNX model is right only where a condition holds."),
]


def export(
    model: ModelArgument,
    out: _OutOption = None,
    inputs: InputsOption = None,
    sizes: SizesOption = None,
    budget: BudgetOption = None,
    target: _TargetOption = _Target.onnx,
    opset: _OpsetOption = None,
    dtype: DtypeOption = None,
    exporter: _ExporterOption = _Exporter.to_onnx,
    weights: _WeightsOption = _Weights.copy,
    verify: _VerifyOption = _Verify.auto,
    no_verify: _UnverifiedOption = False,
    rewrite: RewriteOption = None,
    strict: _StrictOption = False,
    onnxruntime: RuntimeOption = None,
    state: StateOption = StateChoice.refuse,
    repeat: RepeatOption = True,
    force: _ForceOption = False,
    check: _CheckOption = None,
) -> Report:
    """Export MODEL to ONNX, run it beside PyTorch at many sizes, and write a report.

    The model runs on two or more sets of inputs; dimensions that differ become dynamic. The ONNX
    model is then compared with PyTorch on those inputs and on inputs of other sizes, batch 1
    included. OUT holds model.onnx, model.onnx_data and report.html, whole or not at all; when a
    check fails they go to OUT.failed instead, and the exit code is 1.

    With --check FILE nothing is written: the exit code is 1 if FILE computes something else.
    """
    from torchferry.errors import UsageError
    from torchferry.progress import show_steps

    common: Any = {"inputs": inputs, "sizes": sizes, "budget": budget}
    common["dtype"] = dtype.value if dtype else None
    with show_steps() as begin:
        if check is not None and out is None:
            from torchferry.exporter.verify.recheck import check_file

            return check_file(model, check, progress=begin, **common)
        if check is not None or out is None:
            raise UsageError("say what to do: -o OUT to export, or --check FILE to compare")
        from torchferry.exporter.deliver import deliver

        return deliver(
            model, out, progress=begin, target=target.value, opset=opset, weights=weights.value,
            exporter=exporter.value, check=not no_verify, verify=verify.value, strict=strict,
            rewrite="auto" if rewrite is None else rewrite, onnxruntime=onnxruntime,
            state=state.value, repeat=repeat, replace=force, **common,
        )  # fmt: skip
