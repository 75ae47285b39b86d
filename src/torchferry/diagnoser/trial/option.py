"""How pieces are tried: the exporter, its options, and which differences are none."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any

import torch

from torchferry.converter import convert
from torchferry.diagnoser.trial.attempt import EXPORTERS
from torchferry.diagnoser.trial.quiet import quiet
from torchferry.errors import UsageError
from torchferry.observer.observation import Observation
from torchferry.values.kinds import attempt

__all__ = ["Options"]

_TAKERS: dict[str, Callable[..., Any]] = {
    "fx": torch.export.export,
    "onnx_dynamo": torch.onnx.export,
    "torch_script": torch.onnx.export,
    "to_onnx": convert,
}
# What differs from piece to piece, and so is given by the search.
_GIVEN = {
    "mod", "model", "program", "args", "kwargs", "f", "dynamo", "dynamic_shapes", "dynamic_axes",
    "input_names", "output_names", "dims", "defaults",
}  # fmt: skip


@dataclass(frozen=True)
class Options:
    """How pieces are tried.

    Attributes:
        exporter: a key of `EXPORTERS`.
        exporter_kwargs: handed on to the exporter.
        quiet: turn exceptions into a status; otherwise the first one is raised.
        discrepancies: run what was exported on every recorded input and compare.
        use_dynamic_shapes: dimensions that vary are dynamic; None: when there are two calls.
        atol: largest absolute difference that is none; None: no limit of its own. Where neither
            is given, ``Tolerance.of`` the dtypes says what passes.
        rtol: the same for relative differences, which divide by ``max(|expected|, 1e-3)``.
    """

    exporter: str = "fx"
    exporter_kwargs: Mapping[str, Any] = field(default_factory=dict)
    quiet: bool = True
    discrepancies: bool = True
    use_dynamic_shapes: bool | None = None
    atol: float | None = None
    rtol: float | None = None

    def check(self) -> None:
        """Refuse what is no option, before anything runs.

        Raises:
            UsageError: the exporter is unknown or does not take its options, or a tolerance is
                no number.
        """
        if self.exporter not in EXPORTERS:
            raise UsageError(
                f"unknown exporter {self.exporter!r}: choose one of {', '.join(EXPORTERS)}"
            )
        if not all(limit is None or limit >= 0 for limit in (self.atol, self.rtol)):
            raise UsageError(f"atol={self.atol}, rtol={self.rtol}: tolerances are 0 or more")
        if self.exporter_kwargs:
            _check_kwargs(self.exporter, self.exporter_kwargs)


class _Plain(torch.nn.Module):
    """What every exporter can export."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Add 1."""
        return x + 1


def _check_kwargs(exporter: str, kwargs: Mapping[str, Any]) -> None:
    """Tell options that no module could be exported with from faults of modules."""
    parameters = inspect.signature(_TAKERS[exporter]).parameters
    known = [
        name for name, one in parameters.items()
        if name not in _GIVEN and one.kind is not one.VAR_KEYWORD
    ]  # fmt: skip
    for name in kwargs:
        if name in _GIVEN:
            raise UsageError(
                f"exporter_kwargs: {name} differs from module to module, and is found from the "
                "recorded calls; leave it out"
            )
        if name not in known:
            close = get_close_matches(name, known, n=1)
            hint = f"did you mean {close[0]!r}?" if close else f"it takes {', '.join(known)}"
            raise UsageError(f"exporter_kwargs: {exporter} takes no {name!r}; {hint}")
    model = _Plain()
    seen = Observation.from_inputs(model, [((torch.zeros(rows, 3),), {}) for rows in (2, 5)])
    with quiet():
        _, error = attempt(EXPORTERS[exporter], model, seen, kwargs)
    if error is not None:
        said = (str(error).strip().splitlines() or [""])[0][:300]
        raise UsageError(
            f"exporter_kwargs={dict(kwargs)!r}: with these {exporter} exports nothing, not even "
            f"x + 1: {type(error).__name__}: {said}"
        ) from error
