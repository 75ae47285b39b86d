"""torch.export with the dimensions an observation calls dynamic."""

from __future__ import annotations

import inspect
import warnings
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from io import StringIO
from typing import Any

import torch
from torch.export import Dim as TorchDim
from torch.export import ExportedProgram
from torch.fx.experimental import _config as shape_config

from torchferry.capturer.shapes import explicit_keywords, export_arguments
from torchferry.capturer.watch import ShapeEvents, line_of_error, watch_shapes
from torchferry.dims import Dim, Size, parse_size, solve_renaming
from torchferry.errors import CaptureError
from torchferry.observer import Argument, Axis, Observation
from torchferry.observer.naming import unaliased
from torchferry.observer.tree import program_inputs
from torchferry.values.flatten import Path

__all__ = ["Attempt", "Captured", "Fixed", "capture", "find_fixed"]


@dataclass(frozen=True)
class Attempt:
    """One strategy of torch.export and what came of it.

    Attributes:
        strategy: what was tried.
        error: why it failed; ``None`` when it worked.
    """

    strategy: str
    error: str | None


@dataclass(frozen=True)
class Fixed:
    """A dimension that had to be dynamic and that the code made a constant.

    Attributes:
        argument: the argument's path as text.
        axis: which dimension.
        name: what the dimension is called.
        size: the constant, or the other dimension it is made equal to.
        line: ``file:line: code`` that did it, when known.
    """

    argument: str
    axis: int
    name: str
    size: Size
    line: str | None

    def __str__(self) -> str:
        where = f" by {self.line}" if self.line else ""
        tied = "fixed to" if isinstance(self.size, int) else "tied to"
        return (
            f"dimension {self.name} ({self.argument} axis {self.axis}) was {tied} "
            f"{self.size}{where}"
        )


@dataclass(frozen=True)
class Captured:
    """An exported program and how it was got.

    Attributes:
        program: the ``ExportedProgram``.
        dynamic_shapes: what was given to torch.export.
        attempts: every strategy tried, in order; the last one worked.
        fixed: dimensions that are constants in the program though they had to be dynamic.
    """

    program: ExportedProgram
    dynamic_shapes: Any
    attempts: tuple[Attempt, ...]
    fixed: tuple[Fixed, ...] = ()

    @property
    def sizes(self) -> dict[str, int]:
        """The size of each dimension that the program takes at one size only, by name."""
        return {f.name: f.size for f in self.fixed if isinstance(f.size, int)}


@dataclass(frozen=True)
class _Strategy:
    text: str
    strict: bool
    oblivious: bool
    hint: Any


# backed_size_oblivious keeps torch from assuming that a dynamic size is neither 0 nor 1.
_STRATEGIES = (
    _Strategy("non-strict, sizes 0 and 1 not special", False, True, TorchDim.DYNAMIC),
    _Strategy("non-strict", False, False, TorchDim.DYNAMIC),
    _Strategy("strict", True, False, TorchDim.DYNAMIC),
)
# Only to learn which dimensions the code fixes: what AUTO gives up is reported as a fault.
_DIAGNOSIS = _Strategy("non-strict, fixed sizes allowed", False, True, TorchDim.AUTO)


def capture(model: torch.nn.Module, seen: Observation) -> Captured:
    """Export ``model`` with the dimensions that vary in ``seen`` dynamic.

    The call exported is ``seen.best``. Strategies are tried in a fixed order and the first that
    works wins; when one fails because the code fixes a dynamic size, the program with that size
    constant is returned and the dimension listed in ``fixed``.

    Args:
        model: the module that was observed.
        seen: at least one call.

    Raises:
        CaptureError: every strategy failed; ``attempts`` says why, the message names the user's
            line where one is known.
    """
    attempts: list[Attempt] = []
    first: BaseException | None = None
    for strategy in _STRATEGIES:
        program, shapes, events, error = _try(model, seen, strategy)
        attempts.append(Attempt(strategy.text, None if error is None else _brief(error)))
        if program is not None:
            return Captured(program, shapes, tuple(attempts), find_fixed(program, seen, events))
        first = first or error
        if "Constraints violated" in str(error):
            program, shapes, events, error = _try(model, seen, _DIAGNOSIS)
            attempts.append(Attempt(_DIAGNOSIS.text, None if error is None else _brief(error)))
            if program is not None:
                return Captured(
                    program, shapes, tuple(attempts), find_fixed(program, seen, events)
                )
    raise _failure(model, attempts, first) from first


def _failure(
    model: torch.nn.Module, attempts: list[Attempt], error: BaseException | None
) -> CaptureError:
    line = line_of_error(error) if error is not None else None
    data_dependent = "data-dependent" in str(error)
    reason = "the values of a tensor decide what the code does" if data_dependent else "it failed"
    advice = (
        "Write it with torch.where or torch.cond, or state what holds with torch._check"
        if data_dependent
        else "Change that line, or give inputs that do not reach it"
    )
    said = [f"  {a.strategy}: {a.error}" for a in attempts]
    where = f", at {line}" if line else ""
    return CaptureError(
        "\n".join([f"torch.export cannot capture {type(model).__name__}: {reason}{where}.",
                   f"{advice}. What each strategy said:", *said]),
        [(a.strategy, a.error or "") for a in attempts],
    )  # fmt: skip


def _try(
    model: torch.nn.Module, seen: Observation, strategy: _Strategy
) -> tuple[ExportedProgram | None, Any, ShapeEvents, Exception | None]:
    with (
        explicit_keywords(model, seen),
        torch.no_grad(),
        watch_shapes() as events,
        shape_config.patch(  # type: ignore[attr-defined]  # torch adds it at run time
            backed_size_oblivious=strategy.oblivious
        ),
        warnings.catch_warnings(),
        redirect_stderr(StringIO()),  # torch prints the graph of a failed trace
        redirect_stdout(StringIO()),
    ):
        warnings.simplefilter("ignore")
        args, kwargs, dynamic_shapes = export_arguments(model, seen, strategy.hint)
        try:
            program = torch.export.export(
                model, args, kwargs, dynamic_shapes=dynamic_shapes, strict=strategy.strict
            )
        # The driver's wrapper: torch.export lets any exception of the user's code through.
        except Exception as error:  # noqa: BLE001
            return None, dynamic_shapes, events, error
    return program, dynamic_shapes, events, None


def find_fixed(
    program: ExportedProgram, seen: Observation, events: ShapeEvents | None = None
) -> tuple[Fixed, ...]:
    """Dimensions that vary in ``seen`` but are constant, or tied to another one, in a program.

    Args:
        program: an exported program of the observed model.
        seen: which dimensions must be dynamic.
        events: what was heard while torch traced; gives the user's lines.
    """
    nodes = {unaliased(path): (path, node) for path, node in program_inputs(program)}
    axes: dict[str, tuple[Argument, Axis, Path]] = {}
    sizes: list[tuple[str, Size, Size]] = []
    for argument in seen.arguments:
        if unaliased(argument.path) not in nodes:
            continue
        path, node = nodes[unaliased(argument.path)]
        for axis in argument.axes:
            if isinstance(axis.size, Dim):
                place = f"{argument.name} axis {axis.index}"
                axes[place] = (argument, axis, path)
                found = parse_size(str(node.meta["val"].shape[axis.index]))
                sizes.append((place, found, axis.size))
    fixed = []
    for place, found, wanted in solve_renaming(sizes).conflicts:
        argument, axis, path = axes[place]
        source = _source(seen.signature, path)
        line = events.line_of(source, axis.index) if events else None
        fixed.append(Fixed(argument.name, axis.index, str(wanted), found, line))
    return tuple(fixed)


def _source(signature: inspect.Signature, path: Path) -> Path:
    """The path as torch has it: an argument given by position goes by its parameter's name."""
    first, *rest = path
    if not isinstance(first, int):
        return path
    for position, parameter in enumerate(signature.parameters.values()):
        if parameter.kind is inspect.Parameter.VAR_POSITIONAL:
            return (parameter.name, first - position, *rest)
        if position == first:
            return (parameter.name, *rest)
    return path


def _brief(error: BaseException) -> str:
    """The first line that says something, at most 300 characters."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    marked = [line.lstrip("- ") for line in lines if "your code specialized" in line]
    return f"{type(error).__name__}: {(marked or lines or [''])[0]}"[:300]
