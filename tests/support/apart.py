"""Calls in processes of their own, forked from one that has neither threads nor locks."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable
from typing import Any

__all__ = ["run_apart"]

CLEAN = multiprocessing.get_context("forkserver")
# Imported once, in the process that is forked: seconds that each copy of it saves.
CLEAN.set_forkserver_preload(
    ["torchferry.exporter.export", "torchferry.cli.commands.inspect", "torchferry.graph.plot",
     "matplotlib.pyplot", "onnxruntime", "torch.export", "torch._dynamo", "transformers"]
)  # fmt: skip


def run_apart(function: Callable[..., None], *arguments: Any) -> int:
    """The exit code of a process that calls a function; that of a signal is negative."""
    process = CLEAN.Process(target=function, args=arguments)
    process.start()
    process.join()
    return int(process.exitcode or 0)
