"""A patch as data: what it replaces, why, for which versions, and whether it is still needed.

Upstream code is replaced only where its source is the source the patch was written for: a patch
that meets other code is left out, and says so.
"""

from __future__ import annotations

import difflib
import functools
import hashlib
import inspect
import sys
import textwrap
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from types import ModuleType
from typing import Any, Protocol

import torch
from torch.torch_version import TorchVersion

from torchferry.seams.pytorch import OpOverload, dispatch_keys, forget_dispatches
from torchferry.values.randomness import random_kept

__all__ = ["Attribute", "Kernel", "Patch", "Place", "find_copies", "fingerprint", "source_of"]

Function = Callable[..., Any]


class Place(Protocol):
    """Where a function is kept, so that another can be put there."""

    def read(self) -> Function:
        """Return the function that is called now."""
        ...

    def write(self, function: Function) -> Callable[[], None]:
        """Put another there; call what is returned to have the old one back."""
        ...


@dataclass(frozen=True)
class Attribute:
    """A function of a module, or a method of a class.

    Attributes:
        owner: the module or class.
        name: the attribute.
    """

    owner: Any
    name: str

    def read(self) -> Function:
        """See `Place`."""
        found: Function = getattr(self.owner, self.name)
        return found

    def write(self, function: Function) -> Callable[[], None]:
        """See `Place`."""
        inherited = self.name not in vars(self.owner)
        old = None if inherited else inspect.getattr_static(self.owner, self.name)
        setattr(self.owner, self.name, function)

        def undo() -> None:
            if inherited:
                delattr(self.owner, self.name)
            else:
                setattr(self.owner, self.name, old)

        return undo


@dataclass(frozen=True)
class Kernel:
    """The Python decomposition of an ATen operator, which also computes its fake results.

    An operator without one has that of C++; while another is there, no call reaches it.

    Attributes:
        op: the overload; its graph node stays what it is.
    """

    op: OpOverload[..., Any]

    def read(self) -> Function:
        """See `Place`."""
        found: Function = self.op.py_kernels.get(dispatch_keys()[0], self.op)
        return found

    def write(self, function: Function) -> Callable[[], None]:
        """See `Place`."""
        kernels = self.op.py_kernels
        old = {key: kernels[key] for key in dispatch_keys() if key in kernels}
        kernels.update(dict.fromkeys(old or dispatch_keys()[:1], function))
        forget_dispatches(self.op)

        def undo() -> None:
            for key in () if old else dispatch_keys()[:1]:
                del kernels[key]
            kernels.update(old)
            forget_dispatches(self.op)

        return undo


@dataclass(frozen=True)
class Patch:
    """One function of PyTorch or transformers, replaced while a model is exported.

    Hand your own to `torch_export_patches` or `capture` as ``custom_patches=[...]``.

    >>> import torch
    >>> import torchferry as tf
    >>> def replace(original):
    ...     return lambda x: original(x).clamp(max=1.0)
    >>> patch = Patch("torch.relu", "an example", "https://example.org", replace)
    >>> with tf.torch_export_patches(custom_patches=[patch]) as patching:
    ...     torch.relu(torch.tensor([-1.0, 3.0]))
    tensor([0., 1.])
    >>> "torch.relu" in patching.hit
    True

    Attributes:
        subject: what is replaced, as a dotted name; it is looked up in what is imported already,
            so no library is loaded for a patch.
        why: what goes wrong without it, in one sentence.
        link: the upstream issue, pull request or documentation.
        replace: makes the replacement of the function that is there.
        since: the first version of the library it is for; ``""`` for any.
        until: the first version it is not for any more.
        fingerprints: of the sources it may replace (see `fingerprint`); empty when what it
            replaces is a documented interface, whatever its source.
        silent: without it torch.export succeeds, with a program that is right for some sizes
            only; `capture` applies it from the first.
        acts: says, given the arguments of a call, whether the replacement is for it; other calls
            go to the original and are no hits.
        probe: says whether upstream fails without it; ``None`` when only a model can tell.
        places: finds what is replaced when that is not one attribute by the name of ``subject``.
        joins: a field of the outputs that is a list with an entry an item upstream, and here a
            list of one tensor, the entries one after the other.
    """

    subject: str
    why: str
    link: str
    replace: Callable[[Function], Function]
    since: str = ""
    until: str = ""
    fingerprints: tuple[str, ...] = ()
    silent: bool = False
    acts: Callable[..., bool] | None = None
    probe: Callable[[], bool] | None = None
    places: Callable[[], Sequence[Place]] | None = None
    joins: str = ""

    @property
    def library(self) -> str:
        """``torch``, ``transformers`` or whose else the subject is."""
        return self.subject.partition(".")[0]

    def find(self) -> tuple[Place, ...]:
        """Every place it belongs; none while the code is not imported."""
        if self.places is not None:
            return tuple(self.places())
        place = _lookup(self.subject)
        return () if place is None else (place,)

    def misfit(self) -> str | None:
        """Why it does not fit what is installed and imported; ``None`` when it does."""
        if self.since or self.until:
            try:
                installed = TorchVersion(version(self.library))
            except PackageNotFoundError:
                return f"{self.library} is not installed"
            if self.since and installed < self.since:
                return f"{self.library} {installed} is older than {self.since}"
            if self.until and installed >= self.until:
                return f"{self.library} {installed} does not need it since {self.until}"
        if not self.find():
            found = _lookup(self.subject) is not None
            return "nothing there is calls it" if found else "it is not imported"
        if self.fingerprints and fingerprint(self.upstream()) not in self.fingerprints:
            return "its source is not the one it was written for"
        return None

    def upstream(self) -> Function:
        """The function it replaces, by the name of ``subject`` or at the first of its places."""
        place = _lookup(self.subject) or self.find()[0]
        original: Function = _unpatched(place.read())
        return original

    def needed(self) -> bool:
        """Whether upstream fails without it, asked once a process; true when nothing can tell."""
        return self.probe is None or _asked(self.probe)

    def diff(self) -> str:
        """What it replaces and by what, as a unified diff; ``""`` where nothing is imported."""
        if not self.find():
            return ""
        before = self.upstream()
        lines = difflib.unified_diff(
            source_of(before).splitlines(),
            source_of(self.replace(before)).splitlines(),
            self.subject,
            f"{self.subject}, patched",
            lineterm="",
        )
        return "\n".join(lines)


@functools.cache
def _asked(probe: Callable[[], bool]) -> bool:
    with random_kept():  # a module that is made to ask draws weights
        return probe()


def _lookup(dotted: str) -> Place | None:
    """Where a dotted name leads, through modules that are imported."""
    parts = dotted.split(".")
    for cut in range(len(parts) - 1, 0, -1):
        owner: Any = sys.modules.get(".".join(parts[:cut]))
        if isinstance(owner, ModuleType):
            break
    else:
        return None
    if dotted.startswith("torch.ops."):
        op = functools.reduce(getattr, parts[2:], torch.ops)
        return Kernel(op) if isinstance(op, OpOverload) else None
    for name in parts[cut:-1]:
        # Not by getattr: a lazy module would import what is not there.
        owner = vars(owner).get(name) if hasattr(owner, "__dict__") else None
    known = owner is not None and any(parts[-1] in vars(cls) for cls in _resolution(owner))
    return Attribute(owner, parts[-1]) if known else None


def find_copies(module: str, name: str) -> list[Place]:
    """A function's places in its own module and in every other that imports it by its name."""
    home = vars(sys.modules[module]) if module in sys.modules else {}
    known = _unpatched(home.get(name))
    return [
        Attribute(other, name)
        for other in list(sys.modules.values())
        if isinstance(other, ModuleType) and _unpatched(vars(other).get(name)) is known is not None
    ]


def _unpatched(function: Any) -> Any:
    return getattr(function, "__torchferry_original__", function)


def _resolution(owner: Any) -> tuple[Any, ...]:
    return inspect.getmro(owner) if inspect.isclass(owner) else (owner,)


def source_of(function: Function) -> str:
    """The source of a function under its wrappers, without indentation; ``""`` of built-ins."""
    try:
        return textwrap.dedent(inspect.getsource(inspect.unwrap(function)))
    except (OSError, TypeError):
        return ""


def fingerprint(function: Function) -> str:
    """Twelve digits of the SHA-256 of a function's source, without decorators and blank lines.

    >>> fingerprint(torch.nn.Linear.forward) == fingerprint(torch.nn.Bilinear.forward)
    False
    """
    text = "\n".join(line.rstrip() for line in source_of(function).splitlines() if line.strip())
    text = text[max(text.find("def "), 0) :]
    return hashlib.sha256(text.encode()).hexdigest()[:12]
