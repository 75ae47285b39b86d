"""A compiled graph whose first call at each set of sizes is held to PyTorch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import fx

from torchferry.compiler.record import Settings
from torchferry.errors import Mismatch
from torchferry.judge import Reference, Verdict, worst_verdict
from torchferry.seams.pytorch import is_boxed, mark_boxed
from torchferry.values.clone import clone
from torchferry.values.flatten import path_text

__all__ = ["verified"]

Call = Callable[..., Any]


def verified(module: fx.GraphModule, run: Call, settings: Settings) -> Call:
    """Hold a compiled graph to the graph it was made of, as PyTorch runs that.

    Args:
        module: what dynamo captured, or AOTAutograd made.
        run: the compiled graph; one that takes its arguments in a list says so.
        settings: a storage gets the verdicts, in the list ``"verdicts"``.

    Returns:
        A function that is called as ``run`` is, and raises `Mismatch` where its results differ.
    """
    seen: set[tuple[Any, ...]] = set()

    def of(graph: torch.nn.Module, args: list[Any]) -> Any:
        return graph(*args)

    def call(*given: Any) -> Any:
        boxed = len(given) == 1 and isinstance(given[0], list)  # as AOTAutograd calls
        args = list(given[0] if boxed else given)
        sizes = tuple(map(_size, args))
        if sizes in seen:
            return run(*given)
        kept = clone(args)
        results = run(*given)
        seen.add(sizes)

        def again() -> Any:
            return _plain(run(clone(kept)) if boxed else run(*clone(kept)))

        verdicts = [
            (path_text(path), verdict)
            for path, verdict in Reference(of, module, kept).judge(_plain(results), again)
        ]
        worst = worst_verdict(verdict for _, verdict in verdicts)
        if settings.storage is not None:
            said = {"sizes": sizes, "worst": worst, "results": dict(verdicts)}
            settings.storage.setdefault("verdicts", []).append(said)
        if worst.kind in ("differs", "failed"):
            name = next(name for name, verdict in verdicts if verdict is worst)
            raise _mismatch(name or "0", worst, sizes)
        return results

    if is_boxed(run):
        mark_boxed(call)
    return call


def _mismatch(name: str, worst: Verdict, sizes: Sequence[Any]) -> Mismatch:
    return Mismatch(
        f"{worst.about(f'result {name} of the compiled graph')}.\n"
        f"It was called with {', '.join(map(str, sizes))}.\n"
        "Run the model in PyTorch, or find the step that is wrong with torchferry diagnose",
        worst=worst.difference,
    )


def _size(arg: Any) -> Any:
    return tuple(arg.shape) if isinstance(arg, torch.Tensor) else arg


def _plain(results: Any) -> Any:
    """The results as PyTorch's graph nests them: in a tuple."""
    return tuple(results) if isinstance(results, list) else results
