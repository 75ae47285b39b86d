"""Run a model on its input sets and store what each of its modules is given and returns."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from difflib import get_close_matches
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from torch import nn

from torchferry.errors import UsageError
from torchferry.exporter.steps import Steps, bytes_text, counted
from torchferry.exporter.watch import load_model, run_sets
from torchferry.observer.steal import Watched
from torchferry.observer.storage import Storage, open_storage
from torchferry.observer.tap import tapped
from torchferry.observer.trace import Trace
from torchferry.progress import Progress
from torchferry.report.model import Block, Cell, Report, Section, Table

__all__ = ["STORAGE_LIMIT", "dump"]

STORAGE_LIMIT = 2**27
"""Bytes that a dump takes when nothing else is said, as `steal_forward` has it."""

_ROWS = 300  # modules told one by one, so that a page stays small; the JSON form has all

Row = tuple[Cell | str | int | float, ...]


def dump(
    model: str,
    out: Path,
    *,
    inputs: str | None = None,
    dtype: str | None = None,
    modules: str = "*",
    drop: Collection[str] = (),
    storage_limit: int = STORAGE_LIMIT,
    progress: Progress = None,
) -> Report:
    """Dump the inputs and outputs of the modules of a model.

    Args:
        model: what `load_source` accepts.
        out: ``NAME.onnx``, ``NAME.safetensors``, or else a folder, new or empty.
        inputs: ``FILE.py:function`` that gives the input sets; one is enough.
        dtype: ``fp32``, ``fp16`` or ``bf16``; as the model is when ``None``.
        modules: pattern of the modules to dump, by their dotted path: ``*.mlp``; the path of the
            model itself is empty.
        drop: names of keyword arguments to leave out.
        storage_limit: bytes to store at most; what does not fit is left out, and listed.
        progress: what to do with the name of each step as it begins.

    Returns:
        The report; ok when everything was stored.

    Raises:
        UsageError: the model or the inputs cannot be used, no module fits the pattern, or the
            dump cannot be written.
    """
    if storage_limit < 0:
        raise UsageError(f"a dump of {storage_limit} bytes is none; give a number of bytes")
    steps = Steps(progress)
    source = load_model(model, inputs, dtype, steps, least=1)
    chosen = _chosen(source.model, modules)
    trace = _Quiet(None)
    with steps.step("dump") as made, open_storage(out, storage_limit, drop, trace) as store:
        taps = [Watched(path, one, "forward", trace, store) for path, one in chosen.items()]
        with tapped(taps):
            run_sets(source)
        made(counted(sum(tap.calls for tap in taps), "call"))
    return _report(source.title, out, taps, store)


class _Quiet(Trace):
    """Says nothing of what is left out: the report lists it."""

    def skips(self, key: Any, reason: str, value: Any) -> None:
        pass


def _chosen(model: nn.Module, pattern: str) -> dict[str, nn.Module]:
    """The modules whose path is like the pattern."""
    paths = dict(model.named_modules())
    found = {path: module for path, module in paths.items() if fnmatchcase(path, pattern)}
    if not found:
        close = get_close_matches(pattern, paths, n=3, cutoff=0.3)
        hint = f"; there are {', '.join(map(repr, close))}" if close else ""
        raise UsageError(
            f"no module of {type(model).__name__} has a path like {pattern!r}{hint}. "
            "The path of the model itself is empty, and * stands for any text"
        )
    return found


def _report(title: str, out: Path, taps: list[Watched], store: Storage) -> Report:
    called = [tap for tap in taps if tap.calls]
    sections = [Section("Modules", (_module_table(called, store.sizes),))]
    problems: tuple[str, ...] = ()
    if store.skipped:
        sections.append(Section("Left out", (_skipped_table(store.skipped),)))
        left = f"{counted(store.left_out, 'value')} of {store.left_out + len(store.sizes)}"
        more = "raise --storage-limit, or choose fewer modules with --modules"
        problems = (f"{left} left out: {more}",)
    size = bytes_text(sum(store.sizes.values()))
    kept = counted(len(store.sizes), "value")
    kind = "folder" if out.is_dir() else "file"
    return Report(
        title=f"dump {title}",
        ok=not problems,
        verdict=f"{kept} of {counted(len(called), 'module')}, {size}, in the {kind} {out}",
        sections=tuple(sections),
        problems=problems,
        next_steps=(
            f"torchferry inspect {out}  shows keys, shapes and statistics",
            f'have the values: torchferry.create_input_tensors_from_onnx_model("{out}")',
        ),
        data={
            "path": str(out),
            "entries": [{"key": key, "nbytes": count} for key, count in store.sizes.items()],
            "skipped": [{"key": key, "why": why} for key, why in store.skipped.items()],
        },
    )


def _module_table(taps: list[Watched], sizes: Mapping[Any, int]) -> Table:
    stored: dict[str, list[int]] = {}
    for key, size in sizes.items():
        stored.setdefault(key[0], []).append(size)
    rows: list[Row] = []
    for tap in taps:
        found = stored.get(tap.name, [])
        total = bytes_text(sum(found))
        rows.append((repr(tap.name), type(tap.module).__name__, tap.calls, len(found), total))
    note = f"the first {_ROWS} of {len(rows)} modules; --json has all"
    columns = ("module", "class", "calls", "values", "size")
    return Table(columns, tuple(rows[:_ROWS]), note=note if len(rows) > _ROWS else "")


def _skipped_table(skipped: Mapping[Any, str]) -> Block:
    rows = tuple((repr(key), Cell(why, "warn")) for key, why in skipped.items())
    note = f"the first {_ROWS} of {len(rows)}; --json has the first 10,000"
    return Table(("value", "why"), rows[:_ROWS], note=note if len(rows) > _ROWS else "")
