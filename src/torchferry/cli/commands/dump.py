"""``torchferry dump``: the inputs and outputs of every module of a model, in a file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from torchferry.cli.options import DtypeOption, ModelArgument
from torchferry.report.model import Report

__all__ = ["dump"]


_OutOption = Annotated[
    Path,
    typer.Option(
        "--out",
        "-o",
        metavar="FILE",
        help="NAME.onnx, NAME.safetensors, or else a folder, new or empty.",
    ),
]
_InputsOption = Annotated[
    str | None,
    typer.Option(
        metavar="FILE.py:function",
        help="A function that returns one or more sets of inputs: tuples, dicts or both.",
    ),
]
_ModulesOption = Annotated[
    str,
    typer.Option(
        metavar="PATTERN",
        help="Dump the modules whose dotted path is like this: '*.mlp', 'model.layers.0*'. "
        "The path of the model itself is empty.",
    ),
]
_DropOption = Annotated[
    list[str] | None,
    typer.Option(
        metavar="NAME", help="Leave out this keyword argument; may be given several times."
    ),
]
_LimitOption = Annotated[
    int,
    typer.Option(metavar="BYTES", min=0, help="Store at most so much; what is more is listed."),
]


def dump(
    model: ModelArgument,
    out: _OutOption,
    inputs: _InputsOption = None,
    dtype: DtypeOption = None,
    modules: _ModulesOption = "*",
    drop: _DropOption = None,
    storage_limit: _LimitOption = 2**27,
) -> Report:
    """Run MODEL on its inputs and store what each module is given and what it returns.

    Inputs are stored as they were before the call. Under the key (path, number, "I") stand the
    arguments of a call, under (path, number, "O") what it returned. Exit code 1 says that
    something was left out.
    """
    from torchferry.exporter import dump as room
    from torchferry.progress import show_steps

    with show_steps() as begin:
        return room.dump(
            model,
            out,
            inputs=inputs,
            dtype=dtype.value if dtype else None,
            modules=modules,
            drop=tuple(drop or ()),
            storage_limit=storage_limit,
            progress=begin,
        )
