"""torch.export with the dimensions an observation calls dynamic."""

from __future__ import annotations

import inspect
import warnings
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass, replace
from io import StringIO
from typing import Any

import torch
from torch.export import Dim as TorchDim
from torch.export import ExportedProgram
from torch.fx.experimental import _config as shape_config

from torchferry.capturer.huggingface import accept_aliases
from torchferry.capturer.shapes import export_arguments
from torchferry.capturer.watch import ShapeEvents, line_of_error, watch_shapes
from torchferry.dims import Dim, Size, parse_size, solve_renaming
from torchferry.errors import CaptureError
from torchferry.observer import Argument, Axis, Observation
from torchferry.observer.keywords import explicit_keywords
from torchferry.observer.naming import unaliased
from torchferry.observer.tree import program_inputs
from torchferry.values.flatten import Path

__all__ = ["Attempt", "Captured", "Fixed", "capture", "find_fixed"]

_UNLIMITED = 2**31  # a bound as large as this is none


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

    def bounds(self, seen: Observation) -> dict[str, tuple[int, int | None]]:
        """The least and largest size the program was traced for, by name of the dimension.

        A branch on a size (``if x.shape[0] > 20``) narrows them; outside of them the program
        computes something else than the model.
        """
        found: dict[str, tuple[int, int | None]] = {}
        ranges = {str(symbol): r for symbol, r in self.program.range_constraints.items()}
        nodes = {unaliased(path): node for path, node in program_inputs(self.program)}
        for argument in seen.arguments:
            node = nodes.get(unaliased(argument.path))
            if node is None:
                continue
            for axis in argument.axes:
                symbol = str(node.meta["val"].shape[axis.index])
                name = axis.size.name if isinstance(axis.size, Dim) else None
                if name is not None and symbol in ranges:
                    upper = ranges[symbol].upper
                    high = int(upper) if upper.is_Integer and upper < _UNLIMITED else None
                    found[name] = (int(ranges[symbol].lower), high)
        return found


@dataclass(frozen=True)
class _Strategy:
    text: str
    strict: bool
    oblivious: bool
    hint: Any
    as_seen: bool = False


# backed_size_oblivious keeps torch from assuming that a dynamic size is neither 0 nor 1.
_STRATEGIES = (
    _Strategy("non-strict, sizes 0 and 1 not special", False, True, TorchDim.DYNAMIC),
    _Strategy("non-strict", False, False, TorchDim.DYNAMIC),
    _Strategy("strict", True, False, TorchDim.DYNAMIC),
    _Strategy(
        "non-strict, sizes of 0 and 1 as seen", False, False, TorchDim.DYNAMIC, as_seen=True
    ),
)
# Only to learn which dimensions the code fixes: what AUTO gives up is reported as a fault.
_DIAGNOSIS = _Strategy("non-strict, fixed sizes allowed", False, True, TorchDim.AUTO)

# What torch says when the code fixes a size, in general, and to 0 or 1.
_FIXES = ("Constraints violated", "conflicts between user-specified ranges and inferred ranges")


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
    small = min(seen.sizes_of(seen.best).values(), default=2) < 2
    for strategy in _STRATEGIES:
        if strategy.as_seen and not small:
            continue  # that is what was tried first
        program, shapes, events, error = _try(model, seen, strategy)
        attempts.append(Attempt(strategy.text, None if error is None else _brief(error)))
        if program is not None:
            return Captured(program, shapes, tuple(attempts), find_fixed(program, seen, events))
        first = first or error
        # LSTM and GRU lose a dynamic length where sizes 0 and 1 are not special, only there.
        if strategy is not _STRATEGIES[0] and any(text in str(error) for text in _FIXES):
            # Where only a size of 0 or 1 works, it is fixed to that.
            diagnosis = replace(
                _DIAGNOSIS, as_seen=strategy.as_seen, oblivious=not strategy.as_seen
            )
            program, shapes, events, error = _try(model, seen, diagnosis)
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
        explicit_keywords(model, accept_aliases(model, seen.normalized(seen.best)[1])),
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
        args, kwargs, dynamic_shapes = export_arguments(
            model, seen, strategy.hint, as_seen=strategy.as_seen
        )
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
    telling = ("your code specialized", "inferred a static shape", "0/1 specialized")
    marked = [line.lstrip("- ") for line in lines if any(text in line for text in telling)]
    return f"{type(error).__name__}: {(marked or lines or [''])[0]}"[:300]
