"""One export of a sweep: what is asked, what came of it."""

from __future__ import annotations

import resource
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal, cast, get_args

from torchferry.errors import CaptureError, FerryError, RunError

__all__ = ["OUTCOMES", "Job", "Outcome", "Row", "no_memory", "perform"]

Outcome = Literal[
    "ok", "wrong", "specialised", "unverified", "refused", "runtime", "crash", "timeout", "memory"
]
OUTCOMES: tuple[Outcome, ...] = get_args(Outcome)
"""``ok``: equal to PyTorch at every size. ``wrong``: numbers differ. ``specialised``: a dynamic
dimension became fixed. ``unverified``: too few sizes could be compared. ``refused``: an error that
names the reason. ``runtime``: onnxruntime cannot load or run the model. The others are ends of the
process: by a signal, after the time allowed, at the limit of memory."""


@dataclass(frozen=True)
class Job:
    """What is to be exported, and how.

    Attributes:
        model: as on the command line: ``zoo:llama/text-generation/decode``.
        exporter: ``to_onnx`` or ``onnx_dynamo`` (``torch.onnx.export`` as it stands).
        dtype: ``fp32``, ``fp16``, ``bf16``, or ``None`` for the model's own.
        target: ``onnx`` or ``onnxruntime``.
        opset: ``None`` for the default.
    """

    model: str
    exporter: str = "to_onnx"
    dtype: str | None = None
    target: str = "onnx"
    opset: int | None = None


@dataclass(frozen=True)
class Row:
    """What came of a job.

    Attributes:
        job: what was done.
        outcome: see `OUTCOMES`.
        reason: the first problem or error, in one line; empty when all is well.
        seconds: wall time of the process.
        cpu_seconds: CPU time of the process, which begins with the libraries loaded.
        peak_bytes: its largest resident memory.
        nodes: of the written model.
        sizes: sets of sizes that were compared.
        worst: the largest absolute difference.
    """

    job: Job
    outcome: Outcome
    reason: str = ""
    seconds: float = 0.0
    cpu_seconds: float = 0.0
    peak_bytes: int = 0
    nodes: int = 0
    sizes: int = 0
    worst: float = 0.0

    def to_dict(self) -> dict[str, Any]:
        """The row in JSON types."""
        return asdict(self)

    @staticmethod
    def of(values: Mapping[str, Any]) -> Row:
        """The row that `to_dict` wrote.

        Raises:
            KeyError: it is no such row.
        """
        return Row(**{**values, "job": Job(**values["job"])})


def perform(job: Job) -> Row:
    """Do a job in this process."""
    from torchferry.exporter.export import Exporter, export
    from torchferry.observer import Observation
    from torchferry.optimizer import Target
    from torchferry.sources.source import load_source

    try:
        source = load_source(job.model, dtype=job.dtype)
        seen = source.observed(Observation.from_inputs(source.model, source.input_sets))
        program = export(
            source.program or source.model,
            seen,
            target=cast("Target", job.target),
            opset=job.opset,
            exporter=cast("Exporter", job.exporter),
        )
    except FerryError as error:
        return _spent(Row(job, _kind(error), _line(error)))
    except MemoryError as error:
        return _spent(Row(job, "memory", _line(error)))
    report = program.report
    if report is None:  # export always makes one
        raise AssertionError
    return _spent(_judged(job, report.data, report.ok, report.problems))


def _judged(job: Job, data: Mapping[str, Any], ok: bool, problems: tuple[str, ...]) -> Row:
    inside = [check for check in data["checks"] if not check["outside"]]
    outputs = [output for check in inside for output in check["outputs"]]
    compared = [check for check in inside if check["outputs"]]
    outcome: Outcome = "ok"
    if not ok:
        if any(output["verdict"] == "differs" for output in outputs):
            outcome = "wrong"
        elif any(dimension["status"] == "fixed" for dimension in data["dimensions"]):
            outcome = "specialised"
        elif any(check["error"] for check in inside):
            outcome = "runtime"
        else:
            outcome = "unverified"
    worst = max(
        (output["abs"] for output in outputs if output["verdict"] != "random"), default=0.0
    )
    limits = [one["condition"] for one in data["conditions"] if one["limit"]]
    limited = f"verified where {' and '.join(limits)}" if limits else ""
    reason = " ".join((problems[0] if problems else limited).split())[:400]
    return Row(
        job, outcome, reason, nodes=data["model"]["nodes"], sizes=len(compared), worst=worst
    )


# What torch, C++ and CUDA say of memory that is not there.
_NO_MEMORY = ("MemoryError", "can't allocate memory", "not enough memory", "bad_alloc",
              "OutOfMemoryError", "CUDA out of memory")  # fmt: skip


def no_memory(text: str) -> bool:
    """Whether an error's text says that there was not enough memory."""
    return any(one in text for one in _NO_MEMORY)


def _kind(error: FerryError) -> Outcome:
    said = [str(error), *(reason for _, reason in getattr(error, "attempts", ()))]
    if any(no_memory(text) for text in said):
        return "memory"
    if isinstance(error, CaptureError) and "specialise" in str(error):
        return "specialised"
    return "runtime" if isinstance(error, RunError) else "refused"


def _line(error: BaseException) -> str:
    text = f"{type(error).__name__}: {' '.join(str(error).split())[:400]}"
    if "--inputs" in text:
        text += " (a sweep has no --inputs: let package.module:factory return (model, input sets))"
    return text


def _spent(row: Row) -> Row:
    used = resource.getrusage(resource.RUSAGE_SELF)
    peak = used.ru_maxrss * (1 if sys.platform == "darwin" else 1024)  # bytes there, KiB on Linux
    return replace(row, cpu_seconds=used.ru_utime + used.ru_stime, peak_bytes=peak)
