"""``torchferry compare``: an ONNX model beside what it was made from, value by value."""

from __future__ import annotations

from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from torchferry.cli.options import DtypeOption, SizesOption
from torchferry.report.model import Report

__all__ = ["compare"]


_EVAL = "the model came in training mode and was put in eval mode"


class _Feed(StrEnum):
    own = "own"
    torch = "torch"


class _Level(StrEnum):
    none = "none"
    basic = "basic"
    extended = "extended"
    all = "all"


_ModelArgument = Annotated[
    str,
    typer.Argument(
        metavar="MODEL",
        help="What export takes (inspect sources lists it), another .onnx file, or a dump.",
    ),
]
_OnnxArgument = Annotated[
    Path,
    typer.Argument(
        metavar="ONNX", help="The .onnx file, or the folder that export or deploy wrote."
    ),
]
_InputsOption = Annotated[
    str | None,
    typer.Option(
        metavar="FILE.py:function",
        help="A function that returns sets of inputs: tuples, dicts or both; the worst is told.",
    ),
]
_FeedOption = Annotated[
    _Feed, typer.Option(help="Also give each ONNX node the reference's values (torch).")
]
_AgainstOption = Annotated[
    str,
    typer.Option(
        metavar="WHAT",
        help="Values of the captured program, or of modules in eager mode (eager); of an .onnx "
        "MODEL: the level of onnxruntime's optimizations, or the provider, that it is run with.",
    ),
]
_KeepOption = Annotated[
    Path | None,
    typer.Option(
        metavar="DUMP",
        help="Write all values of ONNX, to be MODEL for another version of onnxruntime.",
    ),
]
_CutOption = Annotated[
    Path | None,
    typer.Option(metavar="FILE.onnx", help="Write the first divergence alone, with its inputs."),
]
_LevelOption = Annotated[
    _Level, typer.Option(help="onnxruntime's graph optimizations while values are compared.")
]
_ProviderOption = Annotated[
    list[str] | None,
    typer.Option("--provider", metavar="NAME", help="onnxruntime's execution provider."),
]


def compare(
    model: _ModelArgument,
    onnx: _OnnxArgument,
    inputs: _InputsOption = None,
    sizes: SizesOption = None,
    dtype: DtypeOption = None,
    feed: _FeedOption = _Feed.own,
    against: _AgainstOption = "program",
    keep: _KeepOption = None,
    cut: _CutOption = None,
    atol: Annotated[float | None, typer.Option(help="Absolute tolerance.")] = None,
    rtol: Annotated[float | None, typer.Option(help="Relative tolerance.")] = None,
    level: _LevelOption = _Level.none,
    provider: _ProviderOption = None,
    bisect: Annotated[
        bool, typer.Option("--bisect", help="Tell which step brought a difference in.")
    ] = False,
) -> Report:
    """Compare an ONNX model with MODEL, value by value, and find where they part first.

    Both run on the same inputs. What each value of the ONNX graph stands for in MODEL is known
    from what the exporter wrote beside its nodes. With a dump (torchferry dump) as MODEL nothing
    else is run. Exit code 1 when anything differs.
    """
    from torchferry import comparer
    from torchferry.progress import show_steps
    from torchferry.report.comparison import comparison_report

    with show_steps() as begin:
        begin("load model")
        kind = dtype.value if dtype else None
        reference, sets, notes = _reference(model, inputs, sizes, kind)
        found = comparer.compare(
            reference,
            Path(_onnx_in(str(onnx))),
            sets,
            feed=feed.value,
            against=against,
            atol=atol,
            rtol=rtol,
            level=level.value,
            providers=provider or None,
            keep=keep,
            cut=cut,
            bisect=bisect,
            progress=begin,
        )
    found = replace(found, notes=(*found.notes, *notes))
    return comparison_report(f"compare {model} {onnx}", found)


def _reference(
    model: str, inputs: str | None, sizes: str | None, dtype: str | None
) -> tuple[Any, Any, tuple[str, ...]]:
    """What MODEL stands for, its inputs (``None`` when they are to be drawn), and notes on it."""
    from torchferry.errors import UsageError
    from torchferry.sources import source
    from torchferry.sources.arguments import as_input_sets
    from torchferry.sources.factory import call, find_function

    model = _onnx_in(model)
    if model.endswith((".onnx", ".safetensors")) or _is_dump(Path(model)):
        if dtype is not None:
            raise UsageError(f"{model} keeps its dtypes; leave out --dtype")
        if inputs is None:
            return model, None, ()
        sets = as_input_sets(call(inputs, find_function(inputs)), f"--inputs {inputs}")
        return model, sets, ()
    loaded = source.load_source(model, inputs=inputs, sizes=sizes, dtype=dtype, least=0)
    return loaded.program or loaded.model, loaded.input_sets, (_EVAL,) * loaded.training


def _is_dump(folder: Path) -> bool:
    """Whether a folder was written by ``torchferry dump``."""
    return any((folder / name).is_file() for name in ("index.json", "000000.safetensors"))


def _onnx_in(model: str) -> str:
    """The ONNX model in a folder that an export or a deployment wrote; a file as it is."""
    from torchferry.deployer.layout import ENCODER
    from torchferry.deployer.manifest import is_deployed, read_manifest
    from torchferry.errors import UsageError

    folder = Path(model)
    if is_deployed(folder):
        graph = folder / read_manifest(folder).graphs[0]
        if graph.with_name(f"{ENCODER}.onnx").is_file():
            raise UsageError(
                f"{folder} holds an encoder and a decoder, which are compared one by one: give a "
                f"file of {graph.parent}"
            )
        return str(graph)
    exported = (folder / "model.onnx").is_file() and not (folder / "config.json").exists()
    return str(folder / "model.onnx") if exported else model
