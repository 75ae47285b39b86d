"""Arguments and options that several commands have, each written once."""

from __future__ import annotations

import shlex
from enum import StrEnum
from typing import Annotated

import typer

__all__ = ["Dtype", "DtypeOption", "InputsOption", "ModelArgument", "repeated"]


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
        help="A function that returns sets of inputs: tuples, dicts or both; sizes that differ "
        "show what varies.",
    ),
]
DtypeOption = Annotated[
    Dtype | None, typer.Option(help="Convert the model first.  [default: as it is]")
]


def repeated(model: str, inputs: str | None, dtype: str | None) -> str:
    """What another command is to be given for the same model on the same inputs.

    >>> repeated("zoo:mlp", "my sets.py:sets", "fp16")
    "zoo:mlp --inputs 'my sets.py:sets' --dtype fp16"
    """
    words = [
        model,
        *(["--inputs", inputs] if inputs else []),
        *(["--dtype", dtype] if dtype else []),
    ]
    return shlex.join(words)
