"""Many exports: each in its own process, in parallel, resumable, on one machine or a cluster."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from pathlib import Path

from torchferry.errors import UsageError
from torchferry.exporter.host import close_hosts, run_job
from torchferry.exporter.job import OUTCOMES, Job, Outcome, Row
from torchferry.exporter.steps import bytes_text
from torchferry.progress import Progress, show_steps
from torchferry.report.model import Cell, Report, Section, Table, Tone

__all__ = ["expand", "read_rows", "sweep", "sweep_report"]

_PATIENCE = 10  # seconds until a scheduler must have answered

Lost = tuple[type[Exception], ...]

_TONES: dict[Outcome, Tone] = {"ok": "good", "refused": "warn", "unverified": "warn"}
_SAID: dict[str, str] = {"to_onnx": "torchferry", "onnx_dynamo": "torch.onnx"}


def expand(model: str) -> list[str]:
    """What one ``MODEL`` of a sweep stands for.

    ``zoo:*`` is every variant of every family, ``zoo:NAME`` those of one; all else is itself.
    """
    from torchferry.zoo import catalogue

    name = model.removeprefix("zoo:")
    if model == "zoo:*":
        families = dict.fromkeys([*catalogue.names(), *catalogue.families()])
        return [variant for family in families for variant in expand(f"zoo:{family}")]
    if name != model and name in catalogue.families():
        return [f"zoo:{variant}" for variant in catalogue.variants(name)]
    return [model]


def sweep(
    jobs: Sequence[Job],
    file: Path,
    *,
    workers: int = 1,
    timeout: float = 600.0,
    memory: int | None = None,
    scheduler: str | None = None,
    done: Callable[[Row], None] | None = None,
    progress: Progress = None,
) -> list[Row]:
    """Do every job that ``file`` has no row of yet.

    Each row is added to the file as soon as it is known, so that an interrupted sweep goes on
    where it was. Rows of mistakes in what was asked (`UsageError`) are done again.

    Args:
        jobs: what to export.
        file: one row a line, in JSON.
        workers: processes at a time, on this machine.
        timeout: seconds for each job.
        memory: bytes for each job.
        scheduler: address of a Dask scheduler whose workers do the jobs.
        done: told of every row that is new.
        progress: ``False`` shows no line on a terminal; or a function to call with each step.

    Returns:
        The rows of the jobs, in their order.

    Raises:
        UsageError: the file is no such file, or Dask is missing or does not answer.
    """
    # What the user mistook is mended by the user, and tried again.
    known = {row.job: row for row in read_rows(file) if not row.reason.startswith("UsageError:")}
    open_jobs = [job for job in dict.fromkeys(jobs) if job not in known]
    with (
        show_steps(progress) as begin,
        _executor(workers, scheduler) as (executor, lost),
        file.open("a", encoding="utf-8") as stream,
    ):
        begin(f"{len(open_jobs)} exports")
        futures = {executor.submit(run_job, job, timeout, memory): job for job in open_jobs}
        for number, row in enumerate(_finished(futures, lost), 1):
            begin(f"{number} of {len(open_jobs)}, {row.outcome}: {row.job.model}")
            known[row.job] = row
            stream.write(json.dumps(row.to_dict()) + "\n")
            stream.flush()
            if done is not None:
                done(row)
    return [known[job] for job in jobs]


def _finished(futures: dict[Future[Row], Job], lost: Lost) -> Iterator[Row]:
    try:
        for future in as_completed(futures):
            try:
                yield future.result()
            except lost as error:
                yield Row(futures[future], "crash", f"its worker ended: {str(error)[:300]}")
    finally:
        for future in futures:
            future.cancel()


def read_rows(file: Path) -> Iterator[Row]:
    """The rows of a file, none when there is no such file.

    A line cut short by an interruption, the last one, is left out, and done again by `sweep`.

    Raises:
        UsageError: the file has something else.
    """
    if not file.exists():
        return
    lines = file.read_text("utf-8").splitlines()
    for number, line in enumerate(lines, 1):
        try:
            yield Row.of(json.loads(line))
        except (KeyError, TypeError, ValueError) as error:
            if number == len(lines):
                return
            raise UsageError(
                f"{file}, line {number}, is no row of a sweep: give another file"
            ) from error


@contextmanager
def _executor(workers: int, scheduler: str | None) -> Iterator[tuple[Executor, Lost]]:
    """What runs the jobs, and what it raises for one whose worker is gone."""
    if scheduler is None:
        # Threads only wait here: the work is in processes of their own.
        try:
            with ThreadPoolExecutor(workers) as executor:
                yield executor, ()
        finally:
            close_hosts()
        return
    try:
        from distributed import Client, KilledWorker
    except ImportError as error:
        raise UsageError(
            "--scheduler needs Dask: pip install 'torchferry[dask]', here and on the workers"
        ) from error
    try:
        client = Client(scheduler, timeout=_PATIENCE)
    except (OSError, TimeoutError, ValueError) as error:
        raise UsageError(f"no Dask scheduler answers at {scheduler}: {error}") from error
    with client:
        yield client.get_executor(pure=False), (KilledWorker,)


# The report -----------------------------------------------------------------------------------


def sweep_report(rows: Iterable[Row], title: str) -> Report:
    """What a sweep found: a line a model, a column an exporter; ok when all of ours are."""
    rows = list(rows)
    ours = [row for row in rows if row.job.exporter == "to_onnx"] or rows
    bad = [row for row in ours if row.outcome != "ok"]
    counts = "; ".join(_counted(rows, exporter) for exporter in _exporters(rows))
    return Report(
        title=f"sweep {title}".strip(),
        ok=not bad,
        verdict=counts,
        problems=tuple(
            f"{row.job.model} ({_how(row.job)}): {row.outcome}: {row.reason}" for row in bad[:50]
        ),
        sections=(
            Section("Outcomes", (_outcome_table(rows),)),
            Section("Models", (_model_table(rows),)),
            Section("Time and memory", (_cost_table(rows),), brief=False),
        ),
        data={"rows": [row.to_dict() for row in rows]},
    )


def _exporters(rows: Iterable[Row]) -> list[str]:
    return list(dict.fromkeys(row.job.exporter for row in rows))


def _counted(rows: list[Row], exporter: str) -> str:
    own = [row for row in rows if row.job.exporter == exporter]
    fine = sum(row.outcome == "ok" for row in own)
    return f"{_SAID.get(exporter, exporter)}: {fine} of {len(own)} ok"


def _how(job: Job) -> str:
    return " ".join(filter(None, (_SAID.get(job.exporter, job.exporter), job.dtype)))


def _outcome_table(rows: list[Row]) -> Table:
    ways = list(dict.fromkeys(_how(row.job) for row in rows))
    counts = {way: Counter(row.outcome for row in rows if _how(row.job) == way) for way in ways}
    met = [outcome for outcome in OUTCOMES if any(counts[way][outcome] for way in ways)]
    return Table(("exporter", *met), tuple((way, *(counts[way][o] for o in met)) for way in ways))


def _model_table(rows: list[Row]) -> Table:
    ways = list(dict.fromkeys(_how(row.job) for row in rows))
    by_model: dict[str, dict[str, Row]] = {}
    for row in rows:
        by_model.setdefault(row.job.model, {})[_how(row.job)] = row
    lines = []
    for model, found in by_model.items():
        cells = [_cell(found.get(way)) for way in ways]
        first = found.get(ways[0])
        lines.append((model, *cells, first.reason[:160] if first else ""))
    return Table(("model", *ways, "first problem"), tuple(lines))


def _cell(row: Row | None) -> Cell | str:
    if row is None:
        return ""
    return Cell(row.outcome, _TONES.get(row.outcome, "bad"))


def _cost_table(rows: list[Row]) -> Table:
    return Table(
        ("model", "exporter", "seconds", "CPU seconds", "peak memory", "nodes", "sizes",
         "max abs"),
        tuple(
            (row.job.model, _how(row.job), f"{row.seconds:.1f}", f"{row.cpu_seconds:.1f}",
             bytes_text(row.peak_bytes), row.nodes, row.sizes, f"{row.worst:.2g}")
            for row in rows
        ),
    )  # fmt: skip
