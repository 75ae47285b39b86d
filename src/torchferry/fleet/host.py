"""Jobs in processes of their own that need not load the libraries first.

A host is a process that has loaded them and computed nothing, so that it can fork for every job:
torch, transformers and torch.export take four seconds to load, most small models fewer to export.
A crash or a hang of the fork leaves the host as it is.
"""

from __future__ import annotations

import atexit
import gc
import importlib
import json
import os
import queue
import resource
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, NoReturn, TextIO

from torchferry.errors import UsageError
from torchferry.fleet.job import Job, Outcome, Row, no_memory, perform
from torchferry.seams.table import LOADED_LATE

__all__ = ["close_hosts", "run_job"]

_SECONDS = 600.0
_POLL = 0.02  # seconds between two looks at a job
_TRANSFORMERS = ("modeling_utils", "cache_utils", "masking_utils", "models.auto.modeling_auto")
_LIBRARIES = (
    "onnxruntime",
    "torchferry.exporter.export",
    "torchferry.sources.source",
)


def run_job(job: Job, timeout: float = _SECONDS, memory: int | None = None) -> Row:
    """Do a job in a new process.

    Args:
        job: what to do.
        timeout: seconds until the process is ended.
        memory: bytes of data it may allocate; no limit when ``None``.
    """
    try:
        host = _IDLE.get_nowait()
    except queue.Empty:
        host = _Host()
    with tempfile.TemporaryDirectory(prefix="torchferry-") as name:
        folder = Path(name)  # what a model prints as it runs is not the row
        start = time.monotonic()
        code = host.run(
            {"job": asdict(job), "folder": name, "start": str(Path.cwd()), "timeout": timeout,
             "memory": memory or 0}
        )  # fmt: skip
        seconds = time.monotonic() - start
        if code is None:
            return Row(job, "timeout", f"not done after {timeout:g} s", seconds=timeout)
        if (row := folder / "row.json").exists():
            return replace(Row.of(json.loads(row.read_text("utf-8"))), seconds=seconds)
        said = (folder / "said.txt").read_text("utf-8", "replace").strip().splitlines()
    last = (said or ["nothing was said"])[-1][:300]
    outcome: Outcome = "memory" if no_memory(last) else "crash"
    return Row(job, outcome, f"the process ended with {code}: {last}", seconds)


@atexit.register
def close_hosts() -> None:
    """End the processes that wait for a job."""
    with suppress(queue.Empty):
        while True:
            _IDLE.get_nowait().close()


class _Host:
    """The process, as the one sees it that gives it jobs."""

    def __init__(self) -> None:
        command = [sys.executable, "-m", __name__]
        pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        self.process = subprocess.Popen(command, text=True, **pipes)  # noqa: S603  (our own)

    def run(self, asked: dict[str, Any]) -> int | None:
        """Have a job done: the exit code of its process, ``None`` when its time was over."""
        said = Path(asked["folder"]) / "said.txt"
        said.touch()
        requests, answers = self.process.stdin, self.process.stdout
        if requests is None or answers is None:  # both are pipes
            raise AssertionError
        with suppress(BrokenPipeError):
            requests.write(json.dumps(asked) + "\n")
            requests.flush()
        answer = answers.readline()
        if answer:
            _IDLE.put(self)
            code: int | None = json.loads(answer)
            return code
        said.write_text("its host ended", "utf-8")  # for want of memory, most often
        return self.close()

    def close(self) -> int:
        """End it; its exit code."""
        self.process.communicate()
        return self.process.returncode


_IDLE: queue.SimpleQueue[_Host] = queue.SimpleQueue()


# In the host ------------------------------------------------------------------------------------


def _serve(requests: TextIO, answers: TextIO) -> None:
    """Fork for every line until there is none."""
    _load()
    for line in requests:
        asked = json.loads(line)
        child = os.fork()
        if child == 0:
            _work(**asked)
        with suppress(OSError):  # it has done so itself, or has ended
            os.setpgid(child, child)
        # Ctrl-C reaches this process, and no longer the job's own group.
        signal.signal(signal.SIGINT, lambda *_, group=child: _signal(group, signal.SIGINT))
        code = _end(child, asked["timeout"])
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        answers.write(json.dumps(code) + "\n")
        answers.flush()


def _load() -> None:
    from torchferry.zoo.library import import_transformers

    for name in LOADED_LATE:
        with suppress(ImportError):  # of another version
            importlib.import_module(name)
    for name in _LIBRARIES:
        importlib.import_module(name)
    with suppress(UsageError):  # most models need it; where one does, it says so
        library = import_transformers("a sweep").__name__
        for name in _TRANSFORMERS:
            with suppress(ImportError):  # of another version
                importlib.import_module(f"{library}.{name}")
    gc.freeze()  # the forks share what is never freed


def _end(child: int, timeout: float) -> int | None:
    """The exit code of a process, or ``None`` after it had to be ended."""
    over = time.monotonic() + timeout
    while True:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        if time.monotonic() > over:
            _signal(child, signal.SIGKILL)
            os.waitpid(child, 0)
            return None
        time.sleep(_POLL)


def _signal(group: int, number: int) -> None:
    """Send a signal to a job and all that it started."""
    with suppress(ProcessLookupError):
        os.killpg(group, number)


def _work(job: dict[str, Any], folder: str, start: str, timeout: float, memory: int) -> NoReturn:
    """Do a job, and end this process."""
    del timeout  # the host sees to it
    os.setpgid(0, 0)  # what the model starts ends with it
    signal.signal(signal.SIGINT, signal.default_int_handler)
    with (Path(folder) / "said.txt").open("w", encoding="utf-8") as said:
        os.dup2(said.fileno(), 1)
        os.dup2(said.fileno(), 2)
    code = 1
    try:
        os.chdir(start)
        if memory:
            resource.setrlimit(resource.RLIMIT_DATA, (memory, memory))
        import torch

        torch.set_num_threads(1)  # as many jobs as processors run beside each other
        row = perform(Job(**job))
        (Path(folder) / "row.json").write_text(json.dumps(row.to_dict()), "utf-8")
        code = 0
    except BaseException:
        traceback.print_exc()
        raise
    finally:  # whatever was raised, the fork must not go on as a second host
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the jobs and who gives them
    with os.fdopen(os.dup(1), "w", encoding="utf-8") as pipe:
        os.dup2(2, 1)  # what libraries print as they load is no answer
        _serve(sys.stdin, pipe)
