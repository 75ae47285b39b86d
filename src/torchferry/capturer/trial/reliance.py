"""Find what a model's code asks of its arguments beyond their types and sizes.

``x.is_contiguous()``, ``x.requires_grad``, ``a is b``, the order of ``**kwargs``: a captured
program keeps no guard for these. Few models ask, but one that does may compute something else. So
the model is run on arguments that differ only in such a property.
"""

from __future__ import annotations

import itertools
import random
import warnings
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from torchferry.capturer.patching.huggingface import accept_aliases
from torchferry.capturer.trial.instructions import Instruction, first_line, model_instructions
from torchferry.dims import Dim
from torchferry.judge import Reference, Verdict, worst_verdict
from torchferry.judge.apart import Apart, Note, can_fork
from torchferry.observer import Observation
from torchferry.observer.sets import Arguments
from torchferry.observer.tree import leaves_of, replace_leaves
from torchferry.values.buffers import buffers_kept
from torchferry.values.clone import clone
from torchferry.values.fast_path import disable_fast_paths
from torchferry.values.flatten import Path, path_text
from torchferry.values.kinds import attempt
from torchferry.values.randomness import random_kept
from torchferry.values.reliance import Reliance, check_reliances

if TYPE_CHECKING:
    from torchferry.capturer.trial.trial import Trial

__all__ = ["Reliances", "are_same", "find_reliances", "hangs_on_draws", "run_model"]

_SECONDS = 60.0
_DRAWN = (None, 0, 0x12DD9BB3, None, None, None)
"""Words that a Mersenne Twister begins with: what it draws is random, least, largest."""
_OTHER_CODE = (
    "while it is captured, the model runs other code than in PyTorch, as it asks for types or for "
    "what compiles it, or catches an exception; and the program is wrong for other values. See "
)
_PAIRS = 4  # of tensors that may be one, tried alone


@dataclass(frozen=True)
class Reliances:
    """Properties of the arguments that change what a model computes.

    Attributes:
        asked: the properties.
        unmet: why the program must refuse even the recorded call; ``""`` if it need not.
    """

    asked: tuple[Reliance, ...] = ()
    unmet: str = ""


def run_model(model: torch.nn.Module, inputs: Arguments) -> Any:
    """Call a model, which may write to the arguments, and restore its buffers and random state.

    Raises:
        Exception: whatever the model raises.
    """
    args, kwargs = inputs
    with (
        torch.no_grad(), random_kept(), buffers_kept(model), disable_fast_paths(),
        warnings.catch_warnings(),
    ):  # fmt: skip
        warnings.simplefilter("ignore")
        return model(*args, **accept_aliases(model, kwargs))


def find_reliances(
    model: torch.nn.Module,
    seen: Observation,
    traced: Collection[Instruction] = (),
    trial: Trial | None = None,
) -> Reliances:
    """Run a model on its best call again, and on arguments that differ in what code may ask.

    It runs in a copy of this process if one can be made: what a model keeps of its calls stays
    there.

    Args:
        model: what was observed.
        seen: its calls; one that the model cannot run says nothing.
        traced: the instructions of its code that ran as it was captured.
        trial: of what was captured: judges it where the model runs others.
    """

    def answer(_: Any, __: Note) -> Reliances:
        inputs = seen.normalized(seen.best)
        with model_instructions(model) as ran:
            first, error = attempt(run_model, model, clone(inputs))
        if error is not None:
            return Reliances()
        if trial is not None and (line := _other_line(ran, traced)):
            verdict = trial.of_other_values(inputs)
            if verdict.kind in ("differs", "failed"):
                return Reliances((), f"{_OTHER_CODE}{line}: {verdict.evidence or verdict.numbers}")
        return _try_changes(model, inputs, first, _of_equal_sizes(seen))

    with Apart(answer, forks=can_fork(model)) as apart:
        found = apart.ask(None, _SECONDS)
    return found if isinstance(found, Reliances) else Reliances()  # no time, or no memory


def hangs_on_draws(model: torch.nn.Module, seen: Observation) -> bool:
    """Whether random numbers of ``random`` and NumPy change any bit of what a model returns.

    Layers of transformers draw one whether they may be dropped, in evaluation too. The model runs
    on its best call with the least numbers that can be drawn, the largest, and others, in a copy
    of this process if one can be made.
    """
    inputs = seen.normalized(seen.best)

    def returned(seed: int) -> dict[Path, Any]:
        _begin_draws(seed, _DRAWN[seed])
        return dict(leaves_of((run_model(model, clone(inputs)),), {}))

    def answer(_: Any, __: Note) -> bool:
        kept, drawn = random.getstate(), np.random.get_state()
        try:
            first = returned(0)
            return not all(are_same(first, returned(seed)) for seed in range(1, len(_DRAWN)))
        finally:
            random.setstate(kept)
            np.random.set_state(drawn)

    with Apart(answer, forks=can_fork(model)) as apart:
        found, error = attempt(apart.ask, None, _SECONDS)
        return error is not None or found is not False


def _begin_draws(seed: int, word: int | None) -> None:
    key = np.random.default_rng(seed).integers(2**32, size=624, dtype=np.uint32)
    if word is not None:
        key[: len(key) // 2] = word  # not all: what draws until a number fits has to end
    random.setstate((3, (*map(int, key), 0), None))
    np.random.set_state(("MT19937", key, 0, 0, 0.0))


def are_same(first: Mapping[Any, Any], other: Mapping[Any, Any]) -> bool:
    """Whether two sets of leaves are the same to the last bit."""

    def equal(a: Any, b: Any) -> bool:
        tensors = isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor)
        if not tensors:
            return type(a) is type(b) and bool(a == b)
        return a.shape == b.shape and torch.allclose(a, b, rtol=0, atol=0, equal_nan=True)

    return first.keys() == other.keys() and all(equal(first[at], other[at]) for at in first)


def _other_line(ran: Collection[Instruction], traced: Collection[Instruction]) -> str:
    """The first line of which PyTorch runs another part than the trace; ``""`` if none.

    Code that only one of them runs does not count: what rewrites it, or calls it, is ours.
    """
    common = {code for code, _ in ran} & {code for code, _ in traced}
    return first_line([one for one in {*ran} ^ {*traced} if one[0] in common])


def _try_changes(
    model: torch.nn.Module, inputs: Arguments, first: Any, alike: Arguments | None
) -> Reliances:
    """Run a model on changed arguments, beside what it returned at ``first``."""

    def agrees(*changes: Callable[[Arguments], Arguments]) -> bool | None:
        changed = clone(inputs)
        for change in changes:
            changed = change(changed)
        got, error = attempt(run_model, model, changed)
        return None if error else _verdict(model, inputs, got, first).kind != "differs"

    asked: list[Reliance] = []
    if not agrees(*_CHANGES.values()):
        # An error, such as that of ``view`` on a tensor with gaps, does not count as an answer.
        asked += [word for word, change in _CHANGES.items() if agrees(change) is False]
    for change in (_to_transposed, *[_to_channels_last] * _has_images(inputs)):
        if "memory layout" not in asked and agrees(change) is False:
            asked.append("memory layout")
    if any(_tells_twins(model, twins) for twins in _twins(alike or inputs)):
        asked.append("shared memory")
    kept = dict(_tensors(inputs))
    _, error = attempt(check_reliances, asked, kept, [*kept])
    return Reliances(tuple(asked), "" if error is None else f"as it was recorded, {error}")


def _tells_twins(model: torch.nn.Module, twins: Arguments) -> bool:
    """Whether a model answers otherwise where arguments are one than where they are equal."""
    alike = _changed(twins, torch.clone)
    apart, failed = attempt(run_model, model, clone(alike))
    shared, error = attempt(run_model, model, twins)
    if failed or error:
        return False
    return _verdict(model, alike, shared, apart).kind == "differs"


def _tensors(inputs: Arguments) -> Iterator[tuple[str, torch.Tensor]]:
    for path, leaf in leaves_of(*inputs).items():
        if isinstance(leaf, torch.Tensor):
            yield path_text(path), leaf


def _verdict(model: torch.nn.Module, inputs: Arguments, got: Any, expected: Any) -> Verdict:
    def run(module: torch.nn.Module, given: Arguments) -> Any:
        return module(*given[0], **accept_aliases(model, given[1]))

    reference = Reference(run, model, inputs, expected=expected)
    verdicts = reference.judge(got, lambda: run_model(model, clone(inputs)))
    return worst_verdict(verdict for _, verdict in verdicts)


def _changed(inputs: Arguments, change: Callable[[torch.Tensor], torch.Tensor]) -> Arguments:
    def apply(_: Path, leaf: Any) -> Any:
        return change(leaf) if isinstance(leaf, torch.Tensor) else leaf

    return replace_leaves(*inputs, change=apply)


def _to_other_layout(inputs: Arguments) -> Arguments:
    """Tensors that lie otherwise in memory: the axes from last to first, with gaps."""

    def move(tensor: torch.Tensor) -> torch.Tensor:
        if not tensor.is_contiguous():
            return tensor.contiguous()
        room = tensor.new_empty((*reversed(tensor.shape), 2))[..., 1]
        return _reversed(room).copy_(tensor)

    return _changed(inputs, move)


def _to_transposed(inputs: Arguments) -> Arguments:
    """Tensors without gaps whose first axis is the innermost: ``x.T`` is contiguous."""
    return _changed(inputs, lambda x: _reversed(_reversed(x).contiguous()))


def _reversed(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.permute(tuple(reversed(range(tensor.ndim))))


def _to_channels_last(inputs: Arguments) -> Arguments:
    return _changed(
        inputs,
        lambda x: x.to(memory_format=torch.channels_last) if x.ndim == 4 else x,
    )


def _has_images(inputs: Arguments) -> bool:
    return any(tensor.ndim == 4 for _, tensor in _tensors(inputs))


def _to_parameters(inputs: Arguments) -> Arguments:
    """Tensors that are parameters, of which derivatives are wanted."""
    return _changed(inputs, lambda x: torch.nn.Parameter(x) if x.is_floating_point() else x)


def _in_other_order(inputs: Arguments) -> Arguments:
    return inputs[0], dict(reversed(inputs[1].items()))


def _twins(inputs: Arguments) -> Iterator[Arguments]:
    """The arguments with one tensor in all places of its type and sizes, then in each two."""
    tensors = dict(_tensors(inputs))
    alike: dict[Any, list[str]] = {}
    for name, leaf in tensors.items():
        alike.setdefault((leaf.dtype, leaf.shape), []).append(name)
    for names in alike.values():
        pairs = [*itertools.combinations(names, 2)] if len(names) > 2 else []
        pairs.sort(key=lambda pair: names.index(pair[1]) - names.index(pair[0]))  # keys and values
        for chosen in [names, *pairs[:_PAIRS]] if len(names) > 1 else []:
            yield _shared(inputs, {*chosen}, tensors[chosen[0]].clone())


def _shared(inputs: Arguments, names: set[str], tensor: torch.Tensor) -> Arguments:
    def apply(path: Path, leaf: Any) -> Any:
        return tensor if path_text(path) in names else leaf

    return replace_leaves(*inputs, change=apply)


def _of_equal_sizes(seen: Observation) -> Arguments | None:
    """Inputs whose tensors of one type and rank have equal sizes, as far as they may vary."""
    sizes = seen.sizes_of(seen.best)
    first: dict[Any, list[Any]] = {}
    for argument in seen.arguments:
        wanted = [axis.size for axis in argument.sizes]
        known = first.setdefault((argument.dtype, len(wanted)), wanted)
        for own, other in zip(wanted, known, strict=True):
            if isinstance(own, Dim) and own.name in sizes:
                size = other if isinstance(other, int) else sizes.get(str(other))
                sizes[own.name] = size if size is not None else sizes[own.name]
    if sizes == seen.sizes_of(seen.best):
        return None
    inputs, error = attempt(seen.inputs_at, sizes)
    return None if error else inputs


_CHANGES: dict[Reliance, Callable[[Arguments], Arguments]] = {
    "memory layout": _to_other_layout,
    "gradients": _to_parameters,
    "order": _in_other_order,
}
