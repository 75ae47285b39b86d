"""What a capture gives: the program, and how it was got."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch.export import ExportedProgram

from torchferry.capturer.depth.repeat import Repeated
from torchferry.capturer.fixed import Fixed
from torchferry.capturer.state.state import Change
from torchferry.capturer.trial.instructions import Instruction
from torchferry.dims import Dim
from torchferry.errors import Mismatch, UsageError
from torchferry.observer import Observation
from torchferry.observer.naming import unaliased
from torchferry.observer.tree import input_sizes, leaves_of, program_inputs
from torchferry.values.describe import string_type
from torchferry.values.flatten import path_text
from torchferry.values.kinds import attempt
from torchferry.values.reliance import Reliance, check_reliances

__all__ = ["Attempt", "Captured", "brief_error"]

_UNLIMITED = 2**31  # a bound as large as this is none


@dataclass(frozen=True)
class Attempt:
    """One strategy of torch.export and what came of it.

    Attributes:
        strategy: what was tried.
        error: why it failed; ``None`` when it worked.
        patches: subjects of the patches that were hit.
    """

    strategy: str
    error: str | None
    patches: tuple[str, ...] = ()


_REFUSALS = ("Guard failed", "Trying to flatten user inputs", "Runtime assertion failed")
"""How torch begins to say that a program does not take an argument."""


@dataclass(frozen=True)
class Captured:
    """An exported program and how it was got: what `capture` gives.

    >>> import torch
    >>> import torchferry as tf
    >>> model = torch.nn.Linear(3, 2).eval()
    >>> seen = tf.Observation.from_inputs(model, [(torch.ones(2, 3),), (torch.ones(5, 3),)])
    >>> captured = tf.capture(model, seen)
    >>> [attempt.error for attempt in captured.attempts], captured.fixed
    ([None], ())
    >>> captured.program.range_constraints != {}
    True

    Attributes:
        program: the ``ExportedProgram``.
        dynamic_shapes: what was given to torch.export.
        attempts: every strategy tried, in order.
        fixed: dimensions that are constants in the program though they had to be dynamic.
        patches: subjects of the patches the program was made with, those that were hit.
        registered: classes that were registered with PyTorch's pytrees for it, by name.
        changed: attributes of modules that ``forward`` changes; the program keeps the first value.
        rewritten: a unified diff of the methods that were rewritten; ``""`` when none was.
        joined: fields of the outputs that are a list with an entry an item in the model, and in
            the program a list of one tensor, the entries one after the other.
        declined: ``file:line: code: reason`` of the lines that fix a size and that a rewrite left
            as they are.
        lines: ``file:line: code`` of the user that decided each guard of the program.
        doubts: guards against sizes of 0 and 1 that torch traced as if they could not occur;
            none where the program was run at such sizes.
        relies: what the model's code asks of its arguments besides types and sizes: memory layout,
            gradients, order, shared memory. Nothing where nobody has tried.
        decided: file and number of the lines of rewritten code that a tensor decides about when
            the program runs, not the capture.
        unproven: why the program is wrong for the very call it was captured with; ``""`` if it is
            not, or nobody ran it.
        state: the initial value of each piece of state that is lifted, by name.
        traced: the instructions of the user's code that ran as it was captured; none where nobody
            has listened.
        repeated: which layers do what another one does, and were copied of it.
    """

    program: ExportedProgram
    dynamic_shapes: Any
    attempts: tuple[Attempt, ...]
    fixed: tuple[Fixed, ...] = ()
    patches: tuple[str, ...] = ()
    registered: tuple[str, ...] = ()
    changed: tuple[Change, ...] = ()
    rewritten: str = ""
    joined: tuple[str, ...] = ()
    declined: tuple[str, ...] = ()
    lines: Mapping[str, str] = field(default_factory=dict)
    doubts: tuple[str, ...] = ()
    relies: tuple[Reliance, ...] = ()
    decided: frozenset[tuple[str, int]] = frozenset()
    unproven: str = ""
    state: Mapping[str, Any] = field(default_factory=dict)
    traced: frozenset[Instruction] = frozenset()
    repeated: Repeated = field(default_factory=Repeated)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run the program on the arguments of the model, by position or by name.

        Raises:
            UsageError: an argument is missing, or given twice, of sizes, a structure or a dtype
                that the program was not captured for, or lies otherwise in memory where the code
                asks; or there are too many.
            Mismatch: the program was found wrong for the very call it was captured with.
        """
        if self.unproven:
            raise Mismatch(
                f"{self.unproven}: a call would give wrong numbers. Look for the reason with "
                "torchferry diagnose; captured.program.module() runs it all the same"
            )
        names = self.program.module_call_graph[0].signature.forward_arg_names or []
        by_position, by_name = self.program.example_inputs or ((), {})
        if not args or len(by_position) == len(args):
            return self._run(args, kwargs)
        if len(args) > len(names) or (twice := kwargs.keys() & {*names[: len(args)]}):
            many = f"{len(args)} arguments" if len(args) > len(names) else min(twice)
            raise UsageError(f"the program takes {', '.join(names)}, not {many} by position")
        named = {**dict(zip(names, args, strict=False)), **kwargs}
        if missing := {*names[: len(by_position)], *by_name} - named.keys():
            raise UsageError(f"the program was captured with {min(missing)}: give it too")
        first = [named.pop(name) for name in names[: len(by_position)]]
        return self._run(tuple(first), {name: named[name] for name in by_name})

    def _run(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        captured = leaves_of(*(self.program.example_inputs or ((), {})))
        given = leaves_of(args, kwargs)
        names = {path_text(path): leaf for path, leaf in given.items()}
        check_reliances(self.relies, names, [path_text(path) for path in captured])
        for path, leaf in given.items():
            known = captured.get(path)
            if isinstance(known, torch.Tensor) and not isinstance(leaf, torch.Tensor):
                raise UsageError(
                    f"argument {path_text(path)} is a {type(leaf).__name__}, and was captured as "
                    "a tensor: give it so"
                )
            # torch asks it of those only that the program computes with.
            if not isinstance(leaf, torch.Tensor) or not isinstance(known, torch.Tensor):
                continue
            if leaf.ndim != known.ndim:
                raise UsageError(
                    f"argument {path_text(path)} has {leaf.ndim} dimensions, and was captured "
                    f"with {known.ndim}: give it with as many, or capture the model so"
                )
            if leaf.dtype != known.dtype:
                raise UsageError(
                    f"argument {path_text(path)} is {leaf.dtype}, and was captured as "
                    f"{known.dtype}: give it in that dtype, or capture the model with the other"
                )
        module = self.program.module()
        try:
            return module(*args, **kwargs)
        except (AssertionError, ValueError) as error:
            first = str(error).splitlines()[:1] or [""]
            if not first[0].startswith(_REFUSALS):
                raise
            raise UsageError(
                f"the program was captured for other arguments than "
                f"{string_type((args, kwargs))}: {first[0].rstrip(': ')}"
            ) from error

    @property
    def sizes(self) -> dict[str, int]:
        """The size of each dimension that the program takes at one size only, by name."""
        return {f.name: f.size for f in self.fixed if isinstance(f.size, int)}

    def save(self, path: Path) -> None:
        """Write the program as a ``.pt2`` file: beside its name first, so that it appears whole.

        Args:
            path: where to; an older file there is replaced.

        Raises:
            Mismatch: the program is wrong for the call it was captured with.
            UsageError: ``torch.export`` cannot write it, or what it relies on, or its state; or
                the path cannot be written.
        """
        if self.unproven:
            raise Mismatch(f"{self.unproven}: it is not saved, as a .pt2 file cannot say so")
        if self.state:
            raise UsageError(
                "the state of the model is lifted, which no .pt2 file says: convert the capture "
                "itself, torchferry.to_onnx(captured)"
            )
        if self.relies:
            raise UsageError(
                f"the model's code asks for the {', '.join(self.relies)} of its arguments, which "
                "no .pt2 file says: convert the capture itself, torchferry.to_onnx(captured)"
            )
        partial = path.with_name(f".{path.stem}.partial.pt2")
        try:
            # Its serializer raises what it happens to meet: assertions, NotImplementedError.
            _, error = attempt(torch.export.save, self.program, partial)
            if error is not None:
                said = (str(error).strip().splitlines() or [type(error).__name__])[0][:200]
                raise UsageError(
                    f"torch.export cannot save this program as {path.name}: {said}. Convert the "
                    "capture itself: torchferry.to_onnx(captured)"
                ) from error
            partial.replace(path)
        finally:
            partial.unlink(missing_ok=True)

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
            for axis in argument.sizes:
                symbol = str(input_sizes(node)[axis.index])
                name = axis.size.name if isinstance(axis.size, Dim) else None
                if name is not None and symbol in ranges:
                    upper = ranges[symbol].upper
                    high = int(upper) if upper.is_Integer and upper < _UNLIMITED else None
                    found[name] = (int(ranges[symbol].lower), high)
        return found


def brief_error(error: BaseException) -> str:
    """The first line that says something, at most 300 characters."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    telling = ("your code specialized", "inferred a static shape", "0/1 specialized")
    marked = [line.lstrip("- ") for line in lines if any(text in line for text in telling)]
    return f"{type(error).__name__}: {(marked or lines or [''])[0]}"[:300]
