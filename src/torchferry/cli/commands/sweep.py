"""``torchferry sweep``: export many models, ours and torch.onnx's side by side."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from torchferry.cli.options import Dtype
from torchferry.report.model import Report

__all__ = ["sweep"]


class _Exporter(StrEnum):
    both = "both"
    to_onnx = "to_onnx"
    onnx_dynamo = "onnx_dynamo"


_Models = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[MODEL]...",
        help="As for export; zoo:NAME stands for all its variants.  [default: the zoo]",
    ),
]
_Out = Annotated[
    Path, typer.Option("-o", "--out", metavar="FILE", help="Rows in JSON, one a line.")
]


def sweep(
    models: _Models = None,
    out: _Out = Path("sweep.jsonl"),
    exporter: Annotated[_Exporter, typer.Option(help="Who exports.")] = _Exporter.both,
    dtype: Annotated[
        list[Dtype] | None, typer.Option(help="Convert the models first; may be repeated.")
    ] = None,
    jobs: Annotated[int, typer.Option(min=1, help="Exports at a time.")] = 1,
    timeout: Annotated[float, typer.Option(min=1, help="Seconds for an export.")] = 600.0,
    memory: Annotated[
        float | None, typer.Option(min=0.5, metavar="GIB", help="Memory for an export.")
    ] = None,
    scheduler: Annotated[
        str | None, typer.Option(metavar="ADDRESS", help="Let a Dask cluster do the work.")
    ] = None,
) -> Report:
    """Export every MODEL in a process of its own, and compare it with PyTorch at several sizes.

    A crash, a hang or too much memory is a row like any other. Rows are added to the file as they
    come, and what it has is not done again: an interrupted sweep goes on.
    """
    from torchferry.fleet.job import Job
    from torchferry.fleet.summary import sweep_report
    from torchferry.fleet.sweep import expand
    from torchferry.fleet.sweep import sweep as run

    names = [name for given in models or ["zoo:*"] for name in expand(given)]
    exporters = [e.value for e in _Exporter if e is not _Exporter.both]
    chosen = exporters if exporter is _Exporter.both else [exporter.value]
    dtypes = [kind.value for kind in dtype] if dtype else [None]
    todo = [Job(n, e, d) for n in names for d in dtypes for e in chosen]
    rows = run(
        todo,
        out,
        workers=jobs,
        timeout=timeout,
        memory=int(memory * 2**30) if memory else None,
        scheduler=scheduler,
    )
    return sweep_report(rows, " ".join(models or []))
