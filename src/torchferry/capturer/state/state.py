"""What ``forward`` changes in Python, and reads later: no exported program can carry that on."""

from __future__ import annotations

import sys
import threading
from collections import deque
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.fx import Node

from torchferry.capturer.state.outside import DRAWN, outside_state
from torchferry.capturer.watch import line_of_frame
from torchferry.observer.infer import same_constant
from torchferry.seams.huggingface import BOOKKEEPING
from torchferry.seams.pytorch import OpOverload, schema_of

__all__ = [
    "SET", "UNSEEN", "Change", "Watch", "attributes_of_model", "watch_attributes", "watch_state",
    "written_buffers",
]  # fmt: skip

_LOCK = threading.RLock()  # classes are changed for all threads, and put back in order
_PLAIN = (bool, int, float, str, torch.Tensor, type(None))
_CONTAINERS = (list, dict, set, deque)


@dataclass(frozen=True)
class Change:
    """An attribute, or a global, that has another value after ``forward`` than before.

    Attributes:
        name: the module's path and the attribute: ``encoder.steps``; or what `outside_state` has.
        before: what the exported program has in every call, as text; of a container, its length.
        after: what eager PyTorch goes on with.
        line: ``file:line: code`` that reads what an earlier call left; ``""`` when not known.
    """

    name: str
    before: str
    after: str
    line: str = field(default="", compare=False)
    outside: bool = field(default=False, compare=False)

    def __str__(self) -> str:
        if self.name == DRAWN:
            return (
                f"forward draws {DRAWN}, and the exported program has the same in every call: "
                "draw them with torch (torch.rand), or make them an argument"
            )
        if self.outside:
            return (
                f"forward changes {self.name}, outside the model, from {self.before} to "
                f"{self.after}; the exported program has {self.before} in every call: make it an "
                "argument and an output"
            )
        read = f", which {self.line} reads before the call sets it" if self.line else ""
        return (
            f"forward changes self.{self.name} from {self.before} to {self.after}{read}; the "
            f"exported program has {self.before} in every call: register it as a buffer, and "
            'export it with state="lift" (--state lift), or make it an argument and an output'
        )


@contextmanager
def watch_state(model: torch.nn.Module) -> Iterator[list[Change]]:
    """Collect what changes of the Python state of a model while the block runs.

    Numbers, strings, tensors that are no buffers and the lengths of containers are compared. An
    attribute that the call sets before it reads it carries nothing from call to call, and is no
    change. Nor are buffers and parameters: torch.export follows those.

    Args:
        model: any module; its submodules too.

    Yields:
        a list that is filled at the end of the block.
    """
    before, outside = _state(model), outside_state(model)
    changes: list[Change] = []
    with watch_attributes(model) as watch:
        yield changes
    after = _state(model)
    for place in {**before, **after}:
        value, now = before.get(place, _ABSENT), after.get(place, _ABSENT)
        first = watch.first_use(*place)
        if first is not SET and _differ(value, now) and (place in before or first is not UNSEEN):
            full = ".".join(filter(None, place))
            line = "" if first is UNSEEN else first
            changes.append(Change(full, _shown(value), _shown(now), line))
    for name, now in outside_state(model).items():
        value = outside.get(name, _ABSENT)
        if value is not _ABSENT and _differ(value, now):
            shown = ("", "") if name == DRAWN else (_shown(value), _shown(now))
            changes.append(Change(name, *shown, outside=True))


@contextmanager
def watch_attributes(model: torch.nn.Module) -> Iterator[Watch]:
    """Note, while the block runs, what is done first with each attribute of a model.

    Args:
        model: any module; numbers, texts, tensors and containers of its submodules count too.
    """
    watch = Watch(model)
    with _LOCK, ExitStack() as stack:
        for path, name in _state(model):
            stack.enter_context(watch.attribute(type(watch.modules[path]), name))
        for cls in {type(module) for module in model.modules()}:
            stack.enter_context(watch.missing(cls))
        yield watch


_ABSENT = object()
SET, UNSEEN = "set", "unseen"
"""What `Watch.first_use` says in place of a line; no line of code reads like these."""


class Watch:
    """Notes what is done first with attributes: a line reads them, or they are set.

    A tracer has a module stand for another, with its dictionary: so that tells which it is.

    Args:
        model: whose modules are watched.

    Attributes:
        modules: of the model, by path.
        first: ``id`` of a module's dictionary, and a name → `SET`, or the line that reads it.
    """

    def __init__(self, model: torch.nn.Module) -> None:
        self.modules = dict(model.named_modules())
        self.first: dict[tuple[int, str], str] = {}
        self.replaced: set[tuple[type[Any], str]] = set()

    def first_use(self, path: str, name: str) -> str:
        """The line that read an attribute before it was set; else `SET` or `UNSEEN`."""
        return self.first.get((id(vars(self.modules[path])), name), UNSEEN)

    @contextmanager
    def attribute(self, cls: type[Any], name: str) -> Iterator[None]:
        """Put a property in the place of an attribute of a class's modules, within the block."""
        if (cls, name) in self.replaced:
            yield
            return
        self.replaced.add((cls, name))
        default = getattr(cls, name, _ABSENT)
        old = vars(cls).get(name, _ABSENT)

        def read(module: Any) -> Any:
            if not torch.compiler.is_dynamo_compiling():
                self._note(module, name)
            value = vars(module).get(name, default)
            if value is _ABSENT:
                raise AttributeError(name)
            return value

        def write(module: Any, value: Any) -> None:
            if not torch.compiler.is_dynamo_compiling():
                self.first.setdefault((id(vars(module)), name), SET)
            vars(module)[name] = value

        def delete(module: Any) -> None:
            del vars(module)[name]

        type.__setattr__(cls, name, property(read, write, delete))
        try:
            yield
        finally:
            if old is _ABSENT:
                type.__delattr__(cls, name)
            else:
                type.__setattr__(cls, name, old)

    @contextmanager
    def missing(self, cls: type[Any]) -> Iterator[None]:
        """Note, within the block, attributes that are asked for and are not there."""
        own, find = vars(cls).get("__getattr__"), cls.__getattr__

        def found(module: Any, name: str) -> Any:
            try:
                return find(module, name)
            except AttributeError:
                if not torch.compiler.is_dynamo_compiling():
                    self._note(module, name)
                raise

        type.__setattr__(cls, "__getattr__", found)
        try:
            yield
        finally:
            if own is None:
                type.__delattr__(cls, "__getattr__")
            else:
                type.__setattr__(cls, "__getattr__", own)

    def _note(self, module: Any, name: str) -> None:
        if (id(vars(module)), name) not in self.first:
            self.first[id(vars(module)), name] = line_of_frame(sys._getframe(2))


def written_buffers(program: ExportedProgram) -> set[str]:
    """Names of the buffers that operators of a program write to, as ``add_`` does."""
    buffers = program.graph_signature.inputs_to_buffers
    found = set()
    for node in program.graph.nodes:
        if isinstance(node.target, OpOverload) and schema_of(node.target).is_mutable:
            for given, said in zip(node.args, schema_of(node.target).arguments, strict=False):
                written = said.alias_info is not None and said.alias_info.is_write
                if written and isinstance(given, Node) and given.name in buffers:
                    found.add(buffers[given.name])
    return found


def attributes_of_model(model: torch.nn.Module) -> Iterator[tuple[str, str, Any]]:
    """Path, name and value of the attributes of a model's modules, and of plain ones of classes.

    Private attributes of PyTorch's own modules and what libraries count on their own are left out.
    """
    for path, module in model.named_modules():
        inherited = {
            name: value for cls in reversed(type(module).__mro__)
            if not cls.__module__.startswith(("torch.", "builtins"))
            for name, value in vars(cls).items()
            if not name.startswith("__") and isinstance(value, _PLAIN + _CONTAINERS)
        }  # fmt: skip
        for name, value in {**inherited, **vars(module)}.items():
            # Private ones of torch.nn.Module are among those with an underscore.
            private = name.startswith("_") and type(module).__module__.startswith("torch.")
            if not private and name not in BOOKKEEPING:
                yield path, name, value


def _state(model: torch.nn.Module) -> dict[tuple[str, str], Any]:
    found: dict[tuple[str, str], Any] = {}
    for path, name, value in attributes_of_model(model):
        if isinstance(value, _PLAIN):
            found[path, name] = value
        elif isinstance(value, _CONTAINERS) and name not in vars(torch.nn.Module()):
            found[path, name] = len(value)
    return found


def _differ(before: Any, after: Any) -> bool:
    if isinstance(before, torch.Tensor) or isinstance(after, torch.Tensor):
        return before is not after
    # Sizes of the inputs are symbols while a model is traced.
    symbolic = isinstance(after, torch.SymInt | torch.SymFloat | torch.SymBool)
    alike = type(after) is type(before) or before is _ABSENT
    return not symbolic and alike and not same_constant(before, after)


def _shown(value: Any) -> str:
    if value is _ABSENT:
        return "nothing"
    if isinstance(value, torch.Tensor):
        return f"a tensor of shape {tuple(value.shape)}"
    return repr(value)
