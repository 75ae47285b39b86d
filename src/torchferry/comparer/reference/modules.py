"""A module in eager mode: what its submodules return, and what in it is random."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch

from torchferry.capturer.watch import line_of_error, raising_module
from torchferry.errors import UsageError
from torchferry.observer.naming import output_name
from torchferry.seams.pytorch import BATCH_NORMS, DROPOUTS
from torchferry.values.buffers import buffers_kept
from torchferry.values.clone import clone
from torchferry.values.fast_path import disable_fast_paths, enable_fast_paths
from torchferry.values.flatten import Path, flatten
from torchferry.values.kinds import attempt
from torchferry.values.randomness import random_kept

__all__ = ["Watched", "called", "numbers_of", "trace_modules", "watch_modules"]

See = Callable[[str, Any], None]


@dataclass(frozen=True)
class Watched:
    """What is known of the submodules after a run or two.

    Attributes:
        single: paths of those whose last call returns exactly one tensor; without those that have
            several paths and are called by more than one of them, as far as can be told.
        repeated: paths of those that are called several times.
        drops: paths of the dropouts that draw random numbers, in one call each.
        draws: whether anything else does.
        changing: paths of those that return something else with other random numbers, and the
            outputs that do, as ``output:0``.
        outputs: names of the tensors that the module itself returns, as exporters call them.
        numbered: the same with those of the numbers among them.
        normalized: for modules whose call is followed by one of a batch normalization, its path.
    """

    single: frozenset[str]
    repeated: frozenset[str]
    drops: frozenset[str]
    draws: bool
    changing: frozenset[str]
    outputs: tuple[str, ...]
    numbered: tuple[str, ...]
    normalized: Mapping[str, str]


def called(
    model: torch.nn.Module,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    *,
    fast: bool = False,
) -> Any:
    """What a module returns for copies of the arguments, without gradients.

    Its buffers are as before afterwards.

    Args:
        model: the module.
        args: positional arguments.
        kwargs: named arguments.
        fast: whether PyTorch may take its fused transformer path, which no capture takes.

    Raises:
        UsageError: it raises something; says what, and in which module.
    """
    args, kwargs = clone((args, dict(kwargs)))
    path = enable_fast_paths() if fast else disable_fast_paths()
    with torch.no_grad(), buffers_kept(model), path:
        outputs, error = attempt(lambda: model(*args, **kwargs))
    if error is not None:
        raise UsageError(_told(model, error)) from error
    return outputs


def _told(model: torch.nn.Module, error: Exception) -> str:
    """What a module raised, where in it, and at which line of the user's."""
    path = raising_module(error, model)
    where = f", in {path}" if path else ""
    first = next(iter(str(error).strip().splitlines()), "")
    line = line_of_error(error)
    return (
        f"{type(model).__name__} fails on these inputs in eager mode{where}: "
        f"{type(error).__name__}: {first[:300]}" + (f"\n  at {line}" if line else "")
    )


def numbers_of(outputs: Any, *, also_plain: bool = False) -> list[torch.Tensor]:
    """The tensors of a nested value; nested ones cannot be compared and are left out.

    Args:
        outputs: any value.
        also_plain: Python's numbers too, as tensors of no dimension.
    """
    return [
        leaf if isinstance(leaf, torch.Tensor) else torch.tensor(leaf)
        for _, leaf in _numbers(outputs, also_plain)
    ]


def _numbers(outputs: Any, also_plain: bool) -> list[tuple[Path, Any]]:
    return [
        (path, leaf)
        for path, leaf in flatten(outputs)[0]
        if (isinstance(leaf, torch.Tensor) and not leaf.is_nested)
        or (also_plain and isinstance(leaf, bool | int | float))
    ]


def _names_of(outputs: Any, *, also_plain: bool = False) -> tuple[str, ...]:
    return tuple(output_name(path) for path, _ in _numbers(outputs, also_plain))


def watch_modules(
    model: torch.nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> Watched:
    """Run a module, twice more if it draws random numbers, and look at its submodules."""
    modules = dict(model.named_modules())
    counts: dict[str, int] = {}
    order: list[str] = []
    calls: Counter[str] = Counter()
    returned: list[Any] = []

    def see(path: str, output: Any) -> None:
        calls[path] += 1
        order.append(path)
        counts[path] = len(numbers_of(output))
        if not path:
            returned[:] = [output]

    with random_kept(), _drawing(modules) as drawing:
        before = torch.get_rng_state()
        _run_hooked(model, modules, args, kwargs, see)
        if not drawing and not torch.equal(before, torch.get_rng_state()):
            drawing.add("")
    paths = Counter(id(one) for _, one in model.named_modules(remove_duplicate=False))
    several = {path for path in calls if calls[path] > 1 and paths[id(modules[path])] > 1}
    drops = {path for path in drawing if isinstance(modules[path], DROPOUTS) and calls[path] == 1}
    return Watched(
        frozenset(path for path, count in counts.items() if count == 1) - several,
        frozenset(path for path, count in calls.items() if count > 1),
        frozenset(drops),
        drawing != drops,
        _changing(model, modules, args, kwargs) if drawing else frozenset(),
        _names_of(returned[0]),
        _names_of(returned[0], also_plain=True),
        {
            path: after
            for path, after in itertools.pairwise(order)
            if isinstance(modules[after], BATCH_NORMS) and calls[path] == calls[after] == 1
        },
    )


def _changing(
    model: torch.nn.Module,
    modules: Mapping[str, torch.nn.Module],
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
) -> frozenset[str]:
    """Paths of the submodules, and places of the outputs, that are others in a second run."""
    runs: list[dict[str, Any]] = [{}, {}]
    with random_kept():
        for found in runs:

            def see(path: str, output: Any, found: dict[str, Any] = found) -> None:
                prints = [_print_of(tensor) for tensor in numbers_of(output)]
                many = {f"output:{index}": one for index, one in enumerate(prints)}
                found.update({path: prints} if path else many)

            _run_hooked(model, modules, args, kwargs, see)
    one, other = runs
    return frozenset(path for path in one if one[path] != other.get(path))


def _print_of(tensor: torch.Tensor) -> tuple[Any, ...]:
    """Enough of a tensor to tell it from one that was drawn anew."""
    plain = tensor.detach().reshape(-1)
    plain = torch.view_as_real(plain).reshape(-1) if plain.is_complex() else plain
    wide = plain.double().nan_to_num()
    weights = torch.arange(1, wide.numel() + 1, dtype=torch.float64, device=wide.device)
    return tuple(tensor.shape), float(wide.sum()), float(wide.dot(weights))


@contextmanager
def _drawing(modules: Mapping[str, torch.nn.Module]) -> Iterator[set[str]]:
    """Paths of the modules that move on torch's random numbers themselves, within the block."""
    found: set[str] = set()
    inside: list[str] = []
    last = [torch.get_rng_state()]

    def look() -> None:
        now = torch.get_rng_state()
        if inside and not torch.equal(now, last[0]):
            found.add(inside[-1])
        last[0] = now

    def enter(path: str) -> Any:
        def hook(*_: Any) -> None:
            look()
            inside.append(path)

        return hook

    def leave(*_: Any) -> None:
        look()
        inside.pop()

    handles = [
        handle
        for path, module in modules.items()
        if not isinstance(module, torch.jit.ScriptModule)  # which takes no hooks
        for handle in (
            module.register_forward_pre_hook(enter(path)),
            module.register_forward_hook(leave),
        )
    ]
    try:
        yield found
    finally:
        for handle in handles:
            handle.remove()


def trace_modules(
    model: torch.nn.Module,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    wanted: Collection[str],
    *,
    budget: int = 2**26,
    also_plain: bool = False,
) -> Iterator[tuple[str, torch.Tensor]]:
    """Run a module with hooks, several times if its outputs are large.

    Args:
        model: run without gradients, with a copy of the arguments each time, and each time with
            the same random numbers. Its buffers, and what torch draws next, stay as they were.
        args: positional arguments.
        kwargs: named arguments.
        wanted: paths of submodules; ``""`` is the model itself.
        budget: bytes of outputs that are kept at once.
        also_plain: count numbers that the model itself returns among its tensors.

    Yields:
        Paths of submodules and the first tensor of what they return, the others as ``PATH:1``;
        of several calls of a module, the last. In the order in which the last calls end.

    Raises:
        UsageError: the model raises something.
    """
    modules = {path: module for path, module in model.named_modules() if path in wanted}
    state = torch.get_rng_state()
    with random_kept(state):
        sizes = _sizes(model, modules, args, kwargs)
    group: list[str] = []
    last = next(reversed(sizes), None)
    for path in sizes:
        group.append(path)
        if sum(sizes[p] for p in group) >= budget or path == last:
            with random_kept(state):
                found = _outputs(model, {p: modules[p] for p in group}, args, kwargs, also_plain)
            yield from found
            group = []


def _sizes(
    model: torch.nn.Module,
    modules: Mapping[str, torch.nn.Module],
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
) -> dict[str, int]:
    """Bytes that each module returns, in the order in which their last calls end."""
    sizes: dict[str, int] = {}

    def see(path: str, output: Any) -> None:
        sizes.pop(path, None)
        sizes[path] = sum(tensor.nbytes for tensor in numbers_of(output))

    _run_hooked(model, modules, args, kwargs, see)
    return sizes


def _outputs(
    model: torch.nn.Module,
    modules: Mapping[str, torch.nn.Module],
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    also_plain: bool,
) -> list[tuple[str, torch.Tensor]]:
    found: dict[str, list[torch.Tensor]] = {}

    def keep(path: str, output: Any) -> None:
        found.pop(path, None)
        tensors = numbers_of(output, also_plain=also_plain and not path)
        # A copy: what follows may write in place.
        found[path] = [tensor.detach().clone() for tensor in tensors]

    _run_hooked(model, modules, args, kwargs, keep)
    return [
        (f"{path}:{index}" if index else path, tensor)
        for path, tensors in found.items()
        for index, tensor in enumerate(tensors)
    ]


def _run_hooked(
    model: torch.nn.Module,
    modules: Mapping[str, torch.nn.Module],
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    see: See,
) -> None:
    def hook(path: str) -> Any:
        return lambda _module, _args, output: see(path, output)

    handles = [
        module.register_forward_hook(hook(path))
        for path, module in modules.items()
        if path and not isinstance(module, torch.jit.ScriptModule)  # which takes no hooks
    ]
    try:
        outputs = called(model, args, kwargs)
    finally:
        for handle in handles:
            handle.remove()
    if "" in modules:
        see("", outputs)
