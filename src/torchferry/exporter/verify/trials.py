"""Try sizes that were not recorded: apart from this process, within a time and a memory."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

from torchferry.capturer.patches.sliding_window import count_by_mask, window_length
from torchferry.errors import UsageError
from torchferry.exporter.verify.sizes import Group, Sizes, lengths_of_caches
from torchferry.judge.apart import Apart, Ended, Note, available_memory, is_out_of_memory
from torchferry.observer import Observation
from torchferry.runner import Session
from torchferry.values.describe import string_type

__all__ = ["Budget", "Trials", "possible_inputs"]

_LEAST_SECONDS = 60.0
_TIMES_RECORDED = 20  # made sizes may take that many times the recorded ones
_MOST_LOADED = 10.0  # times the budget at most, on a machine that others use
_SHARE = 0.8  # of the memory that is available


@dataclass(frozen=True)
class Budget:
    """What all made sizes together may use.

    Attributes:
        seconds: wall time.
        memory: bytes beside what the process has; ``None`` without a limit.
    """

    seconds: float
    memory: int | None = None

    @staticmethod
    def of(seconds: float | None, recorded: float, waited: float = 0.0) -> Budget:
        """The user's budget, or else one that suits the model, and the load of the machine.

        Args:
            seconds: what the user allows; ``None`` for 60 s or twenty times the recorded calls.
            recorded: processor time that the recorded calls took, in seconds.
            waited: how long they took. Where others use the processor too, time stretches.
        """
        memory = available_memory()
        usual = max(_LEAST_SECONDS, _TIMES_RECORDED * recorded)
        stretch = min(max(waited / max(recorded, 0.01), 1.0), _MOST_LOADED)
        return Budget(
            usual * stretch if seconds is None else seconds,
            None if memory is None else int(_SHARE * memory),
        )


class Row(Protocol):
    """The result at one set of sizes: a `torchferry.exporter.verify.verify.Check`."""

    @property
    def sizes(self) -> Sizes:
        """Of every dynamic dimension."""

    @property
    def refused(self) -> str | None:
        """Why the inputs count for nothing."""

    @property
    def error(self) -> str | None:
        """What failed on the side of onnxruntime."""

    @property
    def failed(self) -> bool:
        """Whether the exported model is wrong."""


class Runner(Protocol):
    """Runs both models and compares."""

    session: Any

    def check(self, inputs: Any, sizes: Sizes, *, made: bool) -> Any:
        """The `Row` of one set of inputs."""


R = TypeVar("R", bound=Row)


class Trials(Generic[R]):
    """Rows at made sizes, from a copy of this process if one can be made."""

    def __init__(
        self,
        runner: Runner,
        seen: Observation,
        budget: Budget,
        *,
        row: Callable[..., R],
        forks: bool,
        doubt: Callable[[Any], str | None] | None = None,
    ) -> None:
        """Prepare.

        Args:
            runner: of the model and its export.
            seen: makes the inputs.
            budget: what all of it may use.
            row: the class of the rows.
            forks: whether a copy of this process may run the models.
            doubt: of inputs at which the exported model is wrong, why PyTorch's own result counts
                for nothing, or ``None``.
        """
        self.runner = runner
        self.seen = seen
        self.budget = budget
        self.row = row
        self.doubt = doubt
        self.until = time.monotonic() + budget.seconds
        self.forks = forks and isinstance(getattr(runner.session, "path", None), Path)
        self.apart = Apart(
            self._answer, forks=self.forks, here=self._answer_here, memory=budget.memory
        )

    def run(self, groups: Sequence[Group]) -> list[tuple[Group, R]]:
        """The row of each group: of the first alternative that PyTorch accepts, or the first."""
        rows = []
        if self.forks:
            self.runner.session.unload()  # the copy loads the model for itself
        with self.apart:
            for group in groups:
                tried: list[R] = []
                for sizes in group.alternatives:
                    row = self._row(sizes)
                    if row is not None:
                        tried.append(row)
                        if row.refused is None:
                            break
                if tried:
                    rows.append((group, tried[-1] if tried[-1].refused is None else tried[0]))
        return rows

    def _row(self, sizes: Sizes) -> R | None:
        left = self.until - time.monotonic()
        if left <= 0:
            return self.row(sizes, True, untried=self._beyond())
        result = self.apart.ask(sizes, left)
        if not isinstance(result, Ended):
            row = self._limited(result)
            if row is not None and row.refused is not None:
                self.apart.close()  # what the model wrote before it stopped goes with the copy
            return row
        if result.kind == "overdue":
            return self.row(sizes, True, untried=self._beyond())
        if result.kind == "memory":
            return self.row(sizes, True, untried=_MEMORY)
        side = result.notes.get("side", "PyTorch")
        inputs = result.notes.get("inputs", "")
        text = f"{side} ended the process ({result.reason}) with these inputs: {inputs}"
        return self.row(sizes, True, **{"refused" if side == "PyTorch" else "error": text})

    def _beyond(self) -> str:
        return f"beyond the budget of {self.budget.seconds:g} s"

    def _limited(self, row: R | None) -> R | None:
        said = "" if row is None else row.refused or row.error or ""
        if row is None or self.budget.memory is None or not is_out_of_memory(said):
            return row
        return self.row(row.sizes, True, untried=_MEMORY)

    def _check(self, wanted: Sizes, session: Any, note: Note) -> R | None:
        try:
            sizes, inputs = possible_inputs(self.seen, wanted)
        except UsageError as error:
            return self.row(wanted, True, refused=str(error).splitlines()[0])
        except (MemoryError, RuntimeError) as error:
            if not is_out_of_memory(str(error)):
                raise
            return self.row(wanted, True, untried=_MEMORY)
        if inputs is None:
            return None
        note("inputs", string_type(inputs, with_shape=True)[:300])
        self.runner.session = session
        row: R = self.runner.check(inputs, sizes, made=True)
        doubt = self.doubt(inputs) if row.failed and self.doubt is not None else None
        return row if doubt is None else self.row(sizes, True, refused=doubt)

    def _answer_here(self, sizes: Sizes, note: Note) -> R | None:
        return self._check(sizes, self.runner.session, note)

    # In the copy:

    def _answer(self, sizes: Sizes, note: Note) -> R | None:
        return self._check(sizes, _Told(self._session, note), note)

    @cached_property
    def _session(self) -> _Later:
        return _Later(self.runner.session)


_MEMORY = "beyond the memory that is available"


class _Later:
    """A session of the copy's own, loaded when it is first called."""

    def __init__(self, other: Session) -> None:
        self._other = other
        self.signature = other.signature

    @cached_property
    def loaded(self) -> Session:
        return self._other.alone()


class _Told:
    """A session that tells when it runs."""

    def __init__(self, session: _Later, note: Note) -> None:
        self.session = session
        self.signature = session.signature
        self.note = note

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.by("__call__", *args, **kwargs)

    def unload(self) -> None:
        self.session.loaded.unload()

    def by(self, method: str, *args: Any, **kwargs: Any) -> Any:
        self.note("side", "onnxruntime")
        result = getattr(self.session.loaded, method)(*args, **kwargs)
        self.note("side", "PyTorch")
        return result


def possible_inputs(seen: Observation, sizes: Sizes) -> tuple[Sizes, tuple[Any, Any] | None]:
    """The sizes, or some like them that a run can have, and inputs; no inputs if there are none.

    A cache with a window holds the last tokens before the queries, as many as fit, and knows how
    many there have been.

    Raises:
        UsageError: there are no such inputs, or the user's function gives none.
    """
    inputs = seen.inputs_at(sizes)
    length = window_length(inputs[1])
    names = [] if length is None else lengths_of_caches(seen)
    for other in (sizes, *({**sizes, name: length} for name in names if length is not None)):
        if other is not sizes:
            inputs = seen.inputs_at(other)
        if window_length(inputs[1]) is None:
            count_by_mask(inputs[1])
            return seen.sizes_at(other, inputs), inputs
    return sizes, None
