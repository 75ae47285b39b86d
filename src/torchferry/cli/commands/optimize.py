"""``torchferry optimize``: an ONNX file into the same computation in fewer, faster nodes."""

from __future__ import annotations

import os
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from torchferry.cli.options import RuntimeOption
from torchferry.errors import UsageError
from torchferry.report.model import Block, Facts, Report, Section, Table
from torchferry.report.quantity import counted, packed_text

if TYPE_CHECKING:
    import onnx_ir as ir

    from torchferry.optimizer import Tally

__all__ = ["optimize"]


class _Processor(StrEnum):
    CPU = "CPU"
    CUDA = "CUDA"


_FileArgument = Annotated[
    Path, typer.Argument(metavar="IN.onnx", help="The model; it stays as it is.")
]
_OutOption = Annotated[
    Path | None, typer.Option("--out", "-o", metavar="OUT.onnx", help="Where to write it.")
]
_PatternsOption = Annotated[
    str,
    typer.Option(
        help="Sets and rules: default, default+onnxruntime, default+onnxruntime+experimental, "
        "default-Cast-MergeEqual."
    ),
]
_ProcessorOption = Annotated[_Processor, typer.Option(help="Where it will run.")]
_FoldOption = Annotated[
    bool, typer.Option("--fold/--no-fold", help="Compute what depends on no input.")
]
_ExplainOption = Annotated[
    str | None, typer.Option(metavar="RULE", help="Why RULE was not applied where it was not.")
]
_StatsOption = Annotated[
    bool, typer.Option("--stats", help="How long each stage took, and why rules declined.")
]
_RunsOption = Annotated[
    int,
    typer.Option(metavar="N", help="How often the stages are run; -1 is as often as it takes."),
]
_DumpOption = Annotated[
    Path | None,
    typer.Option(metavar="FOLDER", help="Write every rewrite there, as two small models."),
]
_VerifyOption = Annotated[
    bool, typer.Option("--verify", help="Check the model after every rewrite.")
]


def optimize(
    file: _FileArgument,
    out: _OutOption = None,
    patterns: _PatternsOption = "default+onnxruntime",
    processor: _ProcessorOption = _Processor.CPU,
    fold: _FoldOption = True,
    explain: _ExplainOption = None,
    stats: _StatsOption = False,
    verify: _VerifyOption = False,
    max_iter: _RunsOption = -1,
    dump_applied_patterns: _DumpOption = None,
    onnxruntime: RuntimeOption = None,
) -> Report:
    """Rewrite the model IN.onnx without changing what it computes.

    The set default keeps to operators of ONNX itself; onnxruntime fuses into those of onnxruntime
    too. Nothing is run, and torch is not needed.
    """
    _check_files(file, out)
    from torchferry.graph import io
    from torchferry.optimizer import OptimizationOptions, Tally, save_library
    from torchferry.optimizer.place import all_nodes
    from torchferry.optimizer.plan import rule_named

    explained = None if explain is None else rule_named(explain)
    options = OptimizationOptions(
        patterns,
        constant_folding=fold,
        processor=processor.value,
        max_iter=max_iter,
        verifies=verify,
        dump_applied_patterns=dump_applied_patterns,
        onnxruntime=onnxruntime,
    )
    model, tally = io.load(file), Tally(explain=explained)
    before = sum(1 for _ in all_nodes(model))
    options.apply(model, tally)
    after = sum(1 for _ in all_nodes(model))
    library = None
    if out is not None:
        io.save(model, out)
        library = save_library(model, out)
    return Report(
        title=f"optimize {file}",
        ok=True,
        verdict=f"{before} → {counted(after, 'node')}",
        sections=(*_sections(tally, stats=stats), *_packed(model)),
        next_steps=_next_steps(file, out, library),
        data=_data(before, after, tally),
    )


def _packed(model: ir.Model) -> tuple[Section, ...]:
    from torchferry.graph.packed import packed_weights

    texts = [packed_text(p.count, p.kind, p.size, p.plain) for p in packed_weights(model)]
    return (Section("Weights", (Facts((("packed", "; ".join(texts)),)),)),) if texts else ()


def _next_steps(file: Path, out: Path | None, library: Path | None) -> tuple[str, ...]:
    if out is None:
        return (f"write it: torchferry optimize {file} -o OUT.onnx",)
    seen = f"see what it is now: torchferry inspect {out}"
    if library is None:
        return (seen,)
    options = f"SessionOptions.register_custom_ops_library({str(library)!r})"
    return (seen, f"run it with its kernels, made for this machine: {options}")


def _check_files(file: Path, out: Path | None) -> None:
    if file.is_dir():
        raise UsageError(f"{file} is a folder: give the .onnx file in it")
    if out is None:
        return
    if out.is_dir() or out.suffix != ".onnx":
        raise UsageError(f"cannot write {out}: give a file name that ends in .onnx")
    if not (out.parent.is_dir() and os.access(out.parent, os.W_OK)):
        raise UsageError(f"cannot write {out}: {out.parent} is no folder that can be written to")


def _sections(tally: Tally, *, stats: bool) -> tuple[Section, ...]:
    sections = [Section("Rewrites", (_applied(tally),))]
    if stats:
        sections.append(Section("Stages and reasons", (_stages(tally), _declined(tally))))
    if tally.explain is not None:
        sections.append(Section(f"Nearest misses of {tally.explain}", (_misses(tally),)))
    return tuple(sections)


def _applied(tally: Tally) -> Block:
    if not tally.applied:
        return Facts((("applied", "none"),))
    return Table(("rule", "applied"), tuple(tally.applied.most_common()))


def _stages(tally: Tally) -> Table:
    rows = tuple((s.name, s.applied, s.nodes, f"{s.seconds * 1e3:.1f} ms") for s in tally.stages)
    return Table(("stage", "rewrites", "nodes after it", "time"), rows)


def _declined(tally: Tally) -> Block:
    rows = [
        (rule, reason, times)
        for rule, reasons in sorted(tally.declined.items())
        for reason, times in reasons.most_common(5)
    ]
    return Table(("rule", "declined because", "times"), tuple(rows)) if rows else Facts(())


def _misses(tally: Tally) -> Block:
    rows = [
        (str(miss.node.name if miss.node is not None else ""), miss.matched, miss.reason)
        for miss in tally.nearest()
    ]
    if not rows:
        return Facts((("nearest", "no node fits more than the first of its pattern"),))
    return Table(("node", "nodes that fit", "then"), tuple(rows))


def _data(before: int, after: int, tally: Tally) -> dict[str, Any]:
    return {
        "nodes_before": before,
        "nodes_after": after,
        "applied": dict(tally.applied),
        "declined": {rule: dict(reasons) for rule, reasons in tally.declined.items()},
        "stages": [vars(stage) for stage in tally.stages],
        "nearest": [{"matched": m.matched, "reason": m.reason} for m in tally.nearest()],
    }
