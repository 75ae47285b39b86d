"""Arguments and options that several commands have, each written once."""

from __future__ import annotations

import shlex
from enum import StrEnum
from typing import Annotated

import typer

__all__ = [
    "BudgetOption",
    "Dtype",
    "DtypeOption",
    "InputsOption",
    "ModelArgument",
    "RepeatOption",
    "RewriteOption",
    "RuntimeOption",
    "SizesOption",
    "StateChoice",
    "StateOption",
    "repeated",
]


class Dtype(StrEnum):
    """What ``--dtype`` takes."""

    fp32 = "fp32"
    fp16 = "fp16"
    bf16 = "bf16"


ModelArgument = Annotated[
    str,
    typer.Argument(
        metavar="MODEL",
        help="zoo:NAME, torchvision:NAME, timm:NAME, a model folder (Hugging Face, diffusers, "
        "PEFT, sentence-transformers), package.module:factory, a .pt2 or a TorchScript file; "
        "inspect sources says more.",
    ),
]
InputsOption = Annotated[
    str | None,
    typer.Option(
        metavar="FILE.py:NAME",
        help="A list of sets of inputs (tuples, dicts or both), or a function that returns it; "
        "or a function of sizes, make(batch_size, height), that returns one set of these sizes.",
    ),
]
RuntimeOption = Annotated[
    str | None,
    typer.Option(
        metavar="VERSION",
        help="The onnxruntime that will run it, as 1.28: what that computes wrong is not fused.  "
        "[default: the installed one]",
    ),
]
SizesOption = Annotated[
    str | None,
    typer.Option(
        metavar="NAME=SIZES,…",
        help="The sizes that are legal: height=64..512:8, batch_size=1..4, width=64|128; no "
        "others are tried.  [default: all]",
    ),
]
BudgetOption = Annotated[
    float | None,
    typer.Option(
        metavar="SECONDS",
        min=0,
        help="Time for the sizes that are tried beside those of the inputs; those left are "
        "listed.  [default: 60, or 20 times what the inputs took]",
    ),
]
DtypeOption = Annotated[
    Dtype | None, typer.Option(help="Convert the model first.  [default: as it is]")
]


class StateChoice(StrEnum):
    """What ``--state`` takes."""

    refuse = "refuse"
    lift = "lift"


RewriteOption = Annotated[
    bool | None,
    typer.Option(help="Rewrite ifs and loops on tensors, first or never; else where needed."),
]

RepeatOption = Annotated[
    bool,
    typer.Option(
        "--repeat/--no-repeat",
        help="Trace one of several layers that do the same, or each of them.",
    ),
]

StateOption = Annotated[
    StateChoice,
    typer.Option(
        help="Refuse what the model keeps from call to call, or lift it: to inputs state.NAME and "
        "outputs state_next.NAME."
    ),
]


def repeated(model: str, inputs: str | None, dtype: str | None, sizes: str | None = None) -> str:
    """What another command is to be given for the same model on the same inputs.

    >>> repeated("zoo:mlp", "my sets.py:sets", "fp16")
    "zoo:mlp --inputs 'my sets.py:sets' --dtype fp16"
    """
    words = [
        model,
        *(["--inputs", inputs] if inputs else []),
        *(["--sizes", sizes] if sizes else []),
        *(["--dtype", dtype] if dtype else []),
    ]
    return shlex.join(words)
