"""``torchferry deploy``: one folder that several runtimes load, and what it costs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from torchferry.cli.options import BudgetOption, InputsOption, ModelArgument
from torchferry.report.model import Report

__all__ = ["deploy"]

_RuntimesOption = Annotated[
    str,
    typer.Option(
        "--for", metavar="RUNTIME,…", help="onnxruntime, genai, optimum, transformers.js."
    ),
]
_PrecisionOption = Annotated[
    str,
    typer.Option(
        metavar="PRECISION,…",
        help="fp32, fp16, bf16, int8, int4; runtimes that are not told otherwise take the first.",
    ),
]
_CalibrateOption = Annotated[
    str | None,
    typer.Option(
        metavar="FILE.txt",
        help="Text to fit int4 to, like what the model will read; none for no text, "
        "hqq for none and zero points fitted to the weights.  "
        "[default: some plain English]",
    ),
]
_LossOption = Annotated[
    float | None,
    typer.Option(
        metavar="NATS",
        help="Give as many weights 8 bits as keep int4's estimated KL divergence below.",
    ),
]
_SizeOption = Annotated[
    str | None,
    typer.Option(metavar="SIZE", help="Give as many weights 8 bits as int4 fits in: '100 MiB'."),
]


def deploy(
    model: ModelArgument,
    out: Annotated[
        Path, typer.Option("-o", "--output", metavar="OUT", help="The folder to write.")
    ],
    runtimes: _RuntimesOption = "onnxruntime",
    precision: _PrecisionOption = "fp32",
    calibrate: _CalibrateOption = None,
    target_loss: _LossOption = None,
    target_size: _SizeOption = None,
    inputs: InputsOption = None,
    budget: BudgetOption = None,
    opset: Annotated[
        int | None, typer.Option(metavar="N", help="ONNX operator set.  [default: 23]")
    ] = None,
    force: Annotated[
        bool, typer.Option("--force", help="Replace OUT if torchferry wrote it.")
    ] = False,
) -> Report:
    """Write a folder that runtimes load, in several precisions, and prove it in each of them.

    The model is exported and verified in floating point, then quantized. Every graph runs in
    every runtime that is installed: greedy tokens are compared with PyTorch's, and the report
    says what each precision costs on texts. OUT has the layout of a Hugging Face repository; it
    appears whole or not at all, as OUT.failed if a check fails, and the exit code is 1 then.
    """
    from torchferry.deployer.deploy import deploy as run
    from torchferry.progress import show_steps

    with show_steps() as begin:
        return run(
            model,
            out,
            runtimes=runtimes,
            precisions=precision,
            calibrate=calibrate,
            target_loss=target_loss,
            target_size=target_size,
            inputs=inputs,
            opset=opset,
            budget=budget,
            replace=force,
            progress=begin,
        )
