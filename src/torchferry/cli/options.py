"""Arguments and options that several commands have, each written once."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

__all__ = ["Dtype", "DtypeOption", "InputsOption", "ModelArgument"]


class Dtype(StrEnum):
    """What ``--dtype`` takes."""

    fp32 = "fp32"
    fp16 = "fp16"
    bf16 = "bf16"


ModelArgument = Annotated[
    str,
    typer.Argument(
        metavar="MODEL",
        help="zoo:NAME, a Hugging Face folder, package.module:factory, or a .pt2 file.",
    ),
]
InputsOption = Annotated[
    str | None,
    typer.Option(
        metavar="FILE.py:function",
        help="A function that returns two or more sets of inputs: tuples, dicts or both.",
    ),
]
DtypeOption = Annotated[
    Dtype | None, typer.Option(help="Convert the model first.  [default: as it is]")
]
