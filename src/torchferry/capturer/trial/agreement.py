"""Whether a captured program computes what the model computed, call by call."""

from __future__ import annotations

import warnings
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch.export import ExportedProgram

from torchferry.capturer.patching.huggingface import accept_aliases
from torchferry.capturer.rewrite.joined import joined_leaves
from torchferry.errors import UsageError
from torchferry.judge import Kind, Reference, Verdict, worst_verdict
from torchferry.observer import Observation
from torchferry.observer.naming import unaliased
from torchferry.observer.observation import Call
from torchferry.observer.tree import leaves_of, path_of
from torchferry.seams.pytorch import pytree
from torchferry.values.clone import clone
from torchferry.values.flatten import path_text

__all__ = ["Agreement", "compare_calls", "load_program", "run_program"]

_LOADED: WeakKeyDictionary[ExportedProgram, torch.nn.Module] = WeakKeyDictionary()


@dataclass(frozen=True)
class Agreement:
    """One call, run again by the program.

    Attributes:
        sizes: what each dynamic dimension was.
        verdict: the worst on the program's outputs; ``failed`` when it did not run.
    """

    sizes: dict[str, int]
    verdict: Verdict

    @property
    def ok(self) -> bool:
        """Whether the program computes what the model does, or draws as it does."""
        return self.verdict.kind in ("equal", "rounding", "random")


def load_program(program: ExportedProgram) -> torch.nn.Module:
    """Make the module of a program, once: for a large one that takes a second.

    The guards of torch.export are not checked.

    Args:
        program: its graph stays as it is from here on.
    """
    module = _LOADED.get(program)
    if module is None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            module = _LOADED[program] = program.module(check_guards=False)
    return module


def run_program(program: ExportedProgram, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Run a program on a call of the model, its tensors fed by where they stand.

    Neither the guards of torch.export are checked, which hold the example's way through code
    that sizes 0 and 1 leave for reasons of speed, nor what containers know besides tensors (the
    number of tokens a cache has seen).

    Args:
        program: with its example inputs.
        args: positional arguments as the program has them.
        kwargs: named arguments, in any order; ``past_key_values`` may be called ``cache``.

    Raises:
        UsageError: the call has other tensors than the program takes.
    """
    if program.example_inputs is None:
        raise UsageError(
            "the exported program has no example inputs, so its arguments are unknown"
        )
    given = {unaliased(path): leaf for path, leaf in leaves_of(args, kwargs).items()}
    values: list[Any] = []
    specs = []
    for tree in program.example_inputs:
        pairs, spec = pytree.tree_flatten_with_path(tree)
        specs.append((spec, len(pairs)))
        for key_path, leaf in pairs:
            path = unaliased(path_of(key_path))
            if leaf is not None and path not in given:
                raise UsageError(f"the program takes {path_text(path)}, which this call has not")
            values.append(None if leaf is None else clone(given[path]))
    (args_spec, count), (kwargs_spec, _) = specs
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return load_program(program)(
            *pytree.tree_unflatten(values[:count], args_spec),
            **pytree.tree_unflatten(values[count:], kwargs_spec),
        )


def compare_calls(
    program: ExportedProgram,
    seen: Observation,
    joined: Collection[str] = (),
    *,
    model: torch.nn.Module | None = None,
    made: bool = False,
) -> tuple[Agreement, ...]:
    """Run a program on every call that was seen with its outputs, and compare.

    Args:
        program: captured from the observed model.
        seen: its calls.
        joined: as `torchferry.capturer.Captured` has it.
        model: runs again where a difference may be rounding, chance or choice; without it only
            the limits decide.
        made: whether the inputs were made up: a call that differs is left out where PyTorch's own
            rounding is as large, see `Reference.is_no_measure`.
    """
    found = []
    for call in seen.calls:
        if call.outputs is not None:
            verdict = _judged(program, seen, call, joined, model, made=made)
            if verdict is not None:
                found.append(Agreement(seen.sizes_of(call), verdict))
    return tuple(found)


def _judged(
    program: ExportedProgram,
    seen: Observation,
    call: Call,
    joined: Collection[str],
    model: torch.nn.Module | None,
    *,
    made: bool,
) -> Verdict | None:
    inputs = seen.normalized(call)

    def run() -> Any:
        return run_program(program, *inputs)

    def again(module: torch.nn.Module, given: tuple[Any, Any]) -> Any:
        if model is None:
            raise UsageError("the model is not at hand")
        return module(*given[0], **accept_aliases(model, given[1]))

    try:
        got = run()
    # What a program refuses: another size than it was made for, other arguments.
    except (AssertionError, IndexError, RuntimeError, TypeError, ValueError,
            UsageError) as error:  # fmt: skip
        lines = str(error).strip().splitlines()
        said = lines[0][:200] if lines else repr(error)
        kind: Kind = "incomparable" if isinstance(error, UsageError) else "failed"
        return Verdict(kind, evidence=f"the program does not run: {said}")
    reference = Reference(
        again,
        torch.nn.Module() if model is None else model,
        inputs,
        leaves=lambda outputs: joined_leaves(outputs, joined),
        expected=call.outputs,
    )
    verdicts = reference.judge(got, run)
    wrong = [path for path, verdict in verdicts if verdict.kind == "differs"]
    if made and wrong and reference.is_no_measure(got, wrong):
        return None
    return worst_verdict(verdict for _, verdict in verdicts)
