"""Compile a library of kernels with the machine's C compiler, once for each source."""

from __future__ import annotations

import hashlib
import logging
import os
import platform
import shutil
import signal
import subprocess
import tempfile
from contextlib import suppress
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

import onnxruntime

from torchferry.config import read_config

__all__ = ["build_library", "compiler", "library_folder"]

_log = logging.getLogger("torchferry")

# Floating-point numbers stay what they are: NaN and infinity count, sums keep their order.
_FLAGS = ("-std=gnu11", "-O3", "-march=native", "-fPIC", "-shared", "-fvisibility=hidden",
          "-fno-math-errno", "-fno-trapping-math", "-ffp-contract=fast", "-fwrapv")  # fmt: skip
_DEADLINE = 120  # seconds


@cache
def compiler() -> str | None:
    """The C compiler: ``CC``, or ``cc`` on the path; ``None`` when there is none, which is logged.

    That of Windows has other arguments, and is not used.
    """
    found = shutil.which(read_config().compiler) if os.name == "posix" else None
    if found is None:
        _log.warning(
            "patterns 'experimental': there is no C compiler %r here, so the graph is what it is "
            "without; set CC to one",
            read_config().compiler,
        )
    return found


def library_folder() -> Path:
    """Where libraries are kept: in the cache, or in a folder of this process without one."""
    folder = read_config().cache_folder
    return _own_folder() if folder is None else folder / "kernels"


def build_library(source: str) -> Path | None:
    """Compile a library, unless it was compiled before.

    Args:
        source: C.

    Returns:
        The shared library; ``None`` without a compiler, or when it fails, which is logged.
    """
    program = compiler()
    if program is None:
        return None
    said = "\0".join((source, program, *_FLAGS, _processor(), onnxruntime.__version__))
    folder = library_folder()
    path = folder / f"{hashlib.sha256(said.encode()).hexdigest()[:24]}.so"
    if path.is_file():
        return path
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder) as name:
            made = Path(name) / "kernels.so"
            Path(name, "kernels.c").write_text(source, "utf-8")
            _run([program, *_FLAGS, str(Path(name, "kernels.c")), "-o", str(made)])
            made.replace(path)
    except (OSError, subprocess.SubprocessError) as error:
        told = getattr(error, "stderr", "") or str(error)
        _log.warning("patterns 'experimental': %s fails: %s", program, told.strip()[:400])
        return None
    return path


def _run(command: list[str]) -> None:
    """Run a program; when its time is over, what it has started ends with it."""
    pipes: dict[str, Any] = {"stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE}
    with subprocess.Popen(  # noqa: S603  (the user's compiler, on a source of ours)
        command, text=True, start_new_session=True, **pipes
    ) as process:
        try:
            _, told = process.communicate(timeout=_DEADLINE)
        finally:
            if process.poll() is None:
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
        if process.returncode:
            raise subprocess.CalledProcessError(process.returncode, command, stderr=told)


@lru_cache(1)
def _own_folder() -> Path:
    # Kept until the process ends: what is loaded cannot be removed everywhere.
    folder = tempfile.TemporaryDirectory(prefix="torchferry-")
    _kept.append(folder)
    return Path(folder.name)


_kept: list[tempfile.TemporaryDirectory[str]] = []


@cache
def _processor() -> str:
    """What tells processors apart, for a folder that several machines share."""
    try:
        lines = Path("/proc/cpuinfo").read_text("utf-8").splitlines()
    except OSError:
        return f"{platform.machine()} {platform.processor()}"
    told = [line for line in lines if line.startswith(("flags", "Features", "model name"))]
    return "\n".join(dict.fromkeys(told))
