"""The options of ``torchferry deploy``, and which of them exclude one another."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import TypedDict

from torchferry.deployer.layout import PRECISIONS, RUNTIMES, read_choice
from torchferry.errors import UsageError
from torchferry.exporter.export import check_options
from torchferry.progress import Progress

__all__ = ["TEXTLESS", "Options", "check_choices"]

TEXTLESS = ("none", "hqq")
"""Values of ``--calibrate`` that fit nothing to texts."""
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*(MiB|GiB|MB|GB)")
_UNITS = {"MiB": 2**20, "GiB": 2**30, "MB": 10**6, "GB": 10**9}


class Options(TypedDict, total=False):
    """Arguments of `deploy`.

    Attributes:
        runtimes: some of `RUNTIMES`, as a sequence or with commas; onnxruntime alone if left out.
        precisions: some of `PRECISIONS`; the first is that of the folder's default graph, fp32 if
            left out.
        calibrate: a text file to fit int4 to; ``"none"`` for the nearest grid, ``"hqq"`` for zero
            points that suit the weights; the default texts if left out.
        target_loss: the KL divergence, in nats, that int4 may cost by estimate.
        target_size: what int4 may take: ``"100 MiB"``, or bytes.
        inputs: ``FILE.py:NAME`` that gives the input sets.
        opset: ONNX operator set; chosen for onnxruntime if left out.
        budget: seconds for sizes beside those of the inputs, see ``export``; 600 if left out.
        replace: an earlier deployment in ``out``.
        progress: what to do with the name of each step.
    """

    runtimes: str | Sequence[str]
    precisions: str | Sequence[str]
    calibrate: str | Path | None
    target_loss: float | None
    target_size: str | float | None
    inputs: str | None
    opset: int | None
    budget: float | None
    replace: bool
    progress: Progress


def check_choices(options: Options) -> tuple[tuple[str, ...], tuple[str, ...], float | None]:
    """Runtimes, precisions and the size that int4 may take.

    Raises:
        UsageError: an option cannot be used, or two exclude each other.
    """
    names = read_choice(options.get("runtimes", "onnxruntime"), RUNTIMES, "runtime")
    precisions = read_choice(options.get("precisions", "fp32"), PRECISIONS, "precision")
    size, loss = _read_size(options.get("target_size")), options.get("target_loss")
    if "int4" not in precisions and (options.get("calibrate"), loss, size) != (None, None, None):
        raise UsageError(
            "--calibrate, --target-loss and --target-size are for int4: add it to --precision"
        )
    if str(options.get("calibrate")) in TEXTLESS and (loss, size) != (None, None):
        raise UsageError(
            "--target-loss and --target-size are kept by what weights cost on texts: leave out "
            f"--calibrate {options.get('calibrate')}"
        )
    if loss is not None and size is not None:
        raise UsageError("--target-loss and --target-size exclude each other: give one of them")
    if loss is not None and not loss > 0:
        raise UsageError(f"--target-loss {loss:g} cannot be reached: give a positive number")
    check_options("onnxruntime", "to_onnx", options.get("opset"))
    return names, precisions, size


def _read_size(text: str | float | None) -> float | None:
    """A number of bytes.

    Raises:
        UsageError: the text cannot be read as a size.
    """
    if text is None or isinstance(text, (int, float)):
        return text
    match = _SIZE.fullmatch(text.strip())
    if match is None:
        raise UsageError(f"--target-size {text} is no size: write it as '100 MiB'")
    return float(match[1]) * _UNITS[match[2]]
