"""Run a command on a page and print it with what it prints, as a terminal shows it."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path

__all__ = ["sh"]


def sh(command: str, folder: Path | str | None = None, lines: int = 60) -> int:
    """Run ``torchferry …`` and return its exit code.

    Args:
        command: the words after the prompt.
        folder: where to run it; the names of files are printed without it.
        lines: how many lines of output are shown at most.
    """
    program, *words = shlex.split(command)
    if program != "torchferry":
        raise ValueError(f"only torchferry is run on a page, not {program}")
    plain = {"NO_COLOR": "1", "COLUMNS": "100", "HF_HUB_OFFLINE": "1", "PYTHONIOENCODING": "utf-8"}
    done = subprocess.run(
        [sys.executable, "-m", "torchferry", *words], cwd=folder, env=os.environ | plain,
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        encoding="utf-8", check=False,
    )  # fmt: skip
    text = done.stdout if folder is None else done.stdout.replace(f"{folder}/", "")
    shown = text.rstrip().splitlines()
    more = [f"… {len(shown) - lines} more lines"] if len(shown) > lines else []
    sys.stdout.write("\n".join([f"$ {command}", *shown[:lines], *more, ""]))
    return done.returncode
