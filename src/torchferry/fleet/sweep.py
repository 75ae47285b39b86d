"""Many exports: each in its own process, in parallel, resumable, on one machine or a cluster."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from pathlib import Path

from torchferry.errors import UsageError
from torchferry.fleet.host import close_hosts, run_job
from torchferry.fleet.job import Job, Row
from torchferry.progress import Progress, show_steps

__all__ = ["expand", "read_rows", "sweep"]

_PATIENCE = 10  # seconds until a scheduler must have answered

Lost = tuple[type[Exception], ...]


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
