"""Identical layers are traced once: of the others, only what differs.

While torch.export traces a model, the calls of torch that a layer makes are noted. The Python of
the next ones runs too, but each call is only compared with the notes (`Replay`), and afterwards
the nodes of the noted layer are copied to where the others stand (`stamp_layers`).
"""

from __future__ import annotations

import functools
import inspect
import sys
import weakref
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import torch

from torchferry.capturer.depth.note import Note
from torchferry.capturer.depth.replay import Escaped, Replay, StandIn, resolved
from torchferry.capturer.entry import around_forward
from torchferry.seams.layers import ENTER, RESULTS, can_repeat, in_trace, model_tracer
from torchferry.seams.pytorch import any_autocast, pytree

__all__ = ["Repeated", "Repeats", "find_layers"]

_MOST = 4  # notes of one class of layers
_OWN = StandIn.__annotations__.keys()
_LEAST = 4  # modules: to compare less than they do takes as long as to trace it


@dataclass(frozen=True)
class Repeated:
    """How much of a trace was left out.

    Attributes:
        layers: how many layers there are in lists of layers that are built alike.
        like: paths of those that were not traced → the path of the layer that each repeats.
        reasons: paths of the others → why they do not repeat one; ``""`` of one that is repeated.
    """

    layers: int = 0
    like: tuple[tuple[str, str], ...] = ()
    reasons: tuple[tuple[str, str], ...] = ()

    @property
    def note(self) -> str:
        """Those words behind a comma; ``""`` if none is repeated."""
        return f", {self}" * bool(self.like)

    def __str__(self) -> str:
        return f"{len(self.like)} of {self.layers} layers repeated"


class Repeats:
    """The layers of a model in one trace.

    Args:
        model: any module.
        on: whether to look for layers at all.

    Attributes:
        lost: why the program of this trace is not to be used; ``""`` if it may be.
    """

    def __init__(self, model: torch.nn.Module, on: bool = True) -> None:
        """Look for layers."""
        self.model = model
        self.layers = find_layers(model) if on and can_repeat() else {}
        self.lost = ""
        self._paths = {id(vars(module)): path for path, module in self.layers.items()}
        self._notes: dict[type[Any], list[Note]] = defaultdict(list)
        self._flaws: Counter[type[Any]] = Counter()
        self._like: dict[str, str] = {}
        self._reasons: dict[str, str] = {}
        self._tracer: Any = None
        self._modes: tuple[Any, ...] = ()
        self._inside = False

    @property
    def found(self) -> Repeated:
        """What came of the trace."""
        return Repeated(
            len(self._like) + len(self._reasons), tuple(self._like.items()),
            tuple(self._reasons.items()),
        )  # fmt: skip

    @property
    def used(self) -> bool:
        """Whether anything was compared."""
        return bool(self._like) or any(self._reasons.values())

    def given_up(self, error: Exception | None) -> Repeated:
        """What is left to say where the model was traced again without this."""
        why = self.lost or f"the trace failed: {error}".splitlines()[0]
        return Repeated(len(self.layers), (), tuple((path, why) for path in self.layers))

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Compare layers with one another, while the block traces the model."""
        if not self.layers:
            yield
            return
        with ExitStack() as stack:
            for cls in {type(module) for module in self.layers.values()}:
                stack.enter_context(self._replaced(cls))
            stack.enter_context(around_forward(self.model, self._without_stand_ins))
            stack.callback(RESULTS.clear)
            yield

    @contextmanager
    def _replaced(self, cls: type[Any]) -> Iterator[None]:
        # Of the class, as a tracer has other modules stand for the layers.
        forward, own = cls.forward, vars(cls).get("forward")

        @functools.wraps(forward)
        def run_layer(module: Any, *args: Any, **kwargs: Any) -> Any:
            path = self._paths.get(id(vars(module)))
            if path is None or not self._begins(path):
                return forward(module, *args, **kwargs)
            self._inside = True
            try:
                return self._run(path, cls, functools.partial(forward, module, *args, **kwargs))
            finally:
                self._inside = False

        vars(run_layer)["__signature__"] = inspect.signature(forward)  # not all follow __wrapped__
        cls.forward = run_layer
        try:
            yield
        finally:
            if own is None:
                del cls.forward
            else:
                cls.forward = own

    def _begins(self, path: str) -> bool:
        """Whether it is the first call of a layer, in the trace of the model itself."""
        tracer = model_tracer()
        if self._inside or tracer is None or path in self._like or path in self._reasons:
            return False
        self._tracer = self._tracer or tracer
        # A mode of the user's would not see the calls that are only compared.
        same = [*map(id, in_trace())] == [*map(id, self._modes)]
        return tracer is self._tracer and same

    def _run(self, path: str, cls: type[Any], forward: Callable[[], Any]) -> Any:
        notes = self._notes[cls]
        self._reasons[path] = "it raised an error"
        ENTER(path)
        new = len(notes) < _MOST and self._flaws[cls] < _MOST
        replay = Replay(path, _state_of_torch(), notes, new)
        like = ""
        try:
            with replay:
                results = [forward()]  # no name of its own, which would count in `_is_kept`
            like = replay.finish()
        finally:
            if replay.escaped or (replay.note is None and not like and not replay.reason):
                self.lost = f"a result of {path} was used where torch does not say for what"
        self._reasons[path] = replay.reason
        if like:
            del self._reasons[path]
            self._like[path] = like
        elif replay.note is not None and replay.note.flaw:
            self._flaws[cls] += 1
            self._reasons[path] = replay.reason or replay.note.flaw
        elif replay.note is not None:
            notes.append(replay.note)
            RESULTS[path] = replay.note.kept
        return self._resolved(path, results)[0] if replay.count else results[0]

    def _resolved(self, path: str, results: list[Any]) -> list[Any]:
        """Results with tensors in the place of stand-ins, which nobody else has kept."""
        try:
            if not _is_kept(results):
                resolved(results)
                return results
            self.lost = f"{path} keeps what it returns"
        except (Escaped, RecursionError) as error:
            self.lost = f"{path}: {error}"
        raise Escaped(self.lost)

    def _without_stand_ins(self, forward: Callable[..., Any]) -> Callable[..., Any]:
        """The same, but torch.export gets to see no stand-in."""

        def run_model(*args: Any, **kwargs: Any) -> Any:
            self._modes = in_trace()
            result = forward(*args, **kwargs)
            if any(isinstance(leaf, StandIn) for leaf in pytree.tree_leaves(result)):
                return pytree.tree_map_only(StandIn, resolved, result)
            return result

        return run_model


def _is_kept(results: list[Any]) -> bool:
    """Whether a stand-in of results is somewhere else too, or has attributes of its own.

    Outside, a tensor takes its place in the results alone.
    """
    leaves = [leaf for leaf in pytree.tree_leaves(results) if isinstance(leaf, StandIn)]
    counts = Counter(map(id, leaves))
    # Results and leaves hold it once for each place; here it has a name, and is an argument.
    return any(
        sys.getrefcount(leaf) > 2 * counts[id(leaf)] + 2
        or weakref.getweakrefcount(leaf) > 1  # the replay has one
        or not vars(leaf).keys() <= _OWN
        for leaf in leaves
    )


def _state_of_torch() -> tuple[Any, ...]:
    return (
        torch.is_grad_enabled(), torch.is_inference_mode_enabled(), torch.get_default_dtype(),
        any_autocast(), torch.get_autocast_dtype("cpu"), *map(id, in_trace()),
    )  # fmt: skip


def find_layers(module: torch.nn.Module, path: str = "") -> dict[str, torch.nn.Module]:
    """The outermost members of containers of modules of which two at least are built alike.

    Args:
        module: any module.
        path: what to put before the paths of its children.
    """
    found: dict[str, torch.nn.Module] = {}
    containers = torch.nn.ModuleList | torch.nn.Sequential | torch.nn.ModuleDict
    children = dict(module.named_children())
    built = Counter(map(_built_of, children.values())) if isinstance(module, containers) else {}
    for name, child in children.items():
        where = f"{path}.{name}" if path else name
        if built and built[_built_of(child)] > 1 and sum(1 for _ in child.modules()) >= _LEAST:
            found[where] = child
        else:
            found |= find_layers(child, where)
    return found


def _built_of(module: torch.nn.Module) -> tuple[Any, ...]:
    parameters = module.named_parameters()
    return (type(module), *((name, one.shape, one.dtype) for name, one in parameters))
