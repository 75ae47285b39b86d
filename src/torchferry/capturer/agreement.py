"""Whether a captured program computes what the model computed, call by call."""

from __future__ import annotations

import warnings
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.utils import _pytree as pytree

from torchferry.capturer.joined import joined_leaves
from torchferry.errors import UsageError
from torchferry.observer import Observation
from torchferry.observer.naming import unaliased
from torchferry.observer.tree import leaves_of, path_of
from torchferry.values import Discrepancy, max_diff
from torchferry.values.clone import clone
from torchferry.values.flatten import path_text

__all__ = ["Agreement", "compare_calls", "run_program"]

_TOLERANCE = 1e-3  # of the largest number in the output; half precision is coarser
_COARSE = 5e-2


@dataclass(frozen=True)
class Agreement:
    """One call, run again by the program.

    Attributes:
        sizes: what each dynamic dimension was.
        difference: from the model's outputs; ``None`` when it did not run.
        error: why it did not run.
        ok: whether the outputs are the same up to rounding.
    """

    sizes: dict[str, int]
    difference: Discrepancy | None
    error: str | None
    ok: bool


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
        return program.module(check_guards=False)(
            *pytree.tree_unflatten(values[:count], args_spec),
            **pytree.tree_unflatten(values[count:], kwargs_spec),
        )


def compare_calls(
    program: ExportedProgram, seen: Observation, joined: Collection[str] = ()
) -> tuple[Agreement, ...]:
    """Run a program on every call that was seen with its outputs, and compare.

    Args:
        program: captured from the observed model.
        seen: its calls.
        joined: as `torchferry.capturer.Captured` has it.
    """
    found = []
    for call in seen.calls:
        if call.outputs is None:
            continue
        sizes = seen.sizes_of(call)
        try:
            got = run_program(program, *seen.normalized(call))
        # What a program refuses: another size than it was made for, other arguments.
        except (AssertionError, IndexError, RuntimeError, TypeError, ValueError,
                UsageError) as error:  # fmt: skip
            lines = str(error).strip().splitlines()
            found.append(Agreement(sizes, None, lines[0] if lines else repr(error), False))
            continue
        difference = max_diff(_joined(call.outputs, joined), _joined(got, joined))
        coarse = any(
            isinstance(leaf, torch.Tensor) and leaf.dtype in (torch.float16, torch.bfloat16)
            for leaf in pytree.tree_leaves(call.outputs)
        )
        limit = (_COARSE if coarse else _TOLERANCE) * max(1.0, difference.scale)
        ok = difference.reason is None and difference.abs <= limit
        found.append(Agreement(sizes, difference, None, ok))
    return tuple(found)


def _joined(outputs: Any, fields: Collection[str]) -> Any:
    return {path_text(p): one for p, one in joined_leaves(outputs, fields)} if fields else outputs
