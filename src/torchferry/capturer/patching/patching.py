"""Patches in force while a model is exported: applied, counted, and taken back."""

from __future__ import annotations

import functools
import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch

from torchferry.capturer.patches import PATCHES
from torchferry.capturer.patching.huggingface import borrowed_patches, import_owners
from torchferry.capturer.patching.patch import Attribute, Patch, Place
from torchferry.errors import UsageError

__all__ = [
    "Applied",
    "PatchRow",
    "Patching",
    "apply_patches",
    "bypass_export_some_errors",
    "patch_rows",
    "torch_export_patches",
]

_log = logging.getLogger("torchferry")
_MARK = "__torchferry_patch__"
_LAYER = "__torchferry_layer__"
_PLACES = threading.RLock()  # held while a function is replaced or put back

# How often each patch was hit in this process.
_HITS: dict[Patch, int] = {}


@dataclass(eq=False)  # counted one by one
class Applied:
    """A patch in force.

    Attributes:
        patch: what was replaced by what.
        hits: how often the replacement was called.
    """

    patch: Patch
    hits: int = 0


@dataclass
class _Layer:
    """A function put in another's place; without listeners it only calls what it replaced."""

    patched: Callable[..., Any]
    listeners: list[Applied]
    undo: Callable[[], None]


@dataclass
class Patching:
    """What a block of `torch_export_patches` did.

    Attributes:
        applied: patches that are needed here, in the order they were applied.
        left_out: ``(subject, why)`` of the others.
    """

    applied: list[Applied] = field(default_factory=list)
    left_out: list[tuple[str, str]] = field(default_factory=list)

    @property
    def hit(self) -> tuple[str, ...]:
        """Subjects of the patches whose code was really called."""
        return tuple(one.patch.subject for one in self.applied if one.hits)

    @property
    def joined(self) -> tuple[str, ...]:
        """Fields of the outputs that the patches hit join, see ``Patch.joins``."""
        fields = (one.patch.joins for one in self.applied if one.hits and one.patch.joins)
        return tuple(dict.fromkeys(fields))


@dataclass(frozen=True)
class PatchRow:
    """A patch as ``torchferry inspect patches`` shows it.

    Attributes:
        subject: what it replaces.
        why: what goes wrong without it.
        link: upstream's issue, pull request or documentation.
        state: ``needed``, ``retired``, ``hit``, or why it does not fit.
        hits: how often it was called in this process.
        diff: a unified diff of the source; empty where the patch does not fit.
    """

    subject: str
    why: str
    link: str
    state: str
    hits: int
    diff: str


@contextmanager
def torch_export_patches(
    patch_torch: bool = True,
    patch_transformers: bool = True,
    patch_sympy: bool = True,
    custom_patches: Sequence[Patch | type[Any]] = (),
    verbose: int = 0,
) -> Iterator[Patching]:
    """Replace what torch.export cannot trace, while the block runs.

    Only patches are applied that are for the installed versions, whose code is imported, and
    that upstream still needs. Each is checked after it is applied; everything is as before
    afterwards, also when the block raises. A patch that is in force already, as in nested
    blocks, stays, and both count its hits. Blocks may end in any order, as those of threads do;
    a function is as before when the last one of it has ended.

    Args:
        patch_torch: apply those of PyTorch, torchaudio and torchvision.
        patch_transformers: apply those of transformers and diffusers, and those that the
            exporter of transformers keeps.
        patch_sympy: apply those of sympy. None is needed with sympy 1.13 and later.
        custom_patches: further ones: `Patch` objects, or classes that have the replacements as
            methods, their names in ``_PATCHES_`` and the class to patch in ``_PATCHED_CLASS_``.
        verbose: log what is applied (1) and also what is left out (2), at level INFO.

    Yields:
        What was applied; ``.hit`` grows while the block runs.

    Raises:
        UsageError: an entry of ``custom_patches`` is no patch, or fits nothing.

    >>> with torch_export_patches() as patching:
    ...     _ = torch.export.export(torch.nn.ReLU(), (torch.zeros(2),))
    >>> patching.hit
    ()
    """
    wanted = {"sympy": patch_sympy}
    wanted |= dict.fromkeys(("torch", "torchaudio", "torchvision"), patch_torch)
    wanted |= dict.fromkeys(("diffusers", "transformers"), patch_transformers)
    patches = [p for p in (*PATCHES, *borrowed_patches()) if wanted.get(p.library, True)]
    custom = [one for given in custom_patches for one in _as_patches(given)]
    for one in custom:
        reason = one.misfit()
        if reason is not None:
            raise UsageError(f"custom patch {one.subject}: {reason}")
    with apply_patches((*patches, *custom)) as patching:
        if verbose:
            _tell(patching, verbose)
        yield patching
    if verbose:
        _log.info("patches hit: %s", ", ".join(patching.hit) or "none")


@contextmanager
def apply_patches(patches: Sequence[Patch]) -> Iterator[Patching]:
    """Apply those of some patches that fit and are needed, while the block runs.

    Args:
        patches: in the order they are applied; the last one of a function is the outermost.
    """
    patching = Patching()
    with ExitStack() as stack:
        for patch in patches:
            reason = patch.misfit() or (None if patch.needed() else "retired: not needed any more")
            if reason is not None:
                patching.left_out.append((patch.subject, reason))
                continue
            applied = Applied(patch)
            patching.applied.append(applied)
            for place in patch.find():
                stack.enter_context(_in_force(applied, place))
        yield patching


bypass_export_some_errors = torch_export_patches
"""The older name of `torch_export_patches`."""


def patch_rows(*, load: bool = False) -> list[PatchRow]:
    """Every patch there is, with its state for what is installed and imported.

    Args:
        load: import first what the patches are for, where it is installed.
    """
    if load:
        import_owners([patch.subject for patch in PATCHES])
        import_owners([patch.subject for patch in borrowed_patches()])
    rows = []
    for patch in (*PATCHES, *borrowed_patches()):
        hits = _HITS.get(patch, 0)
        misfit = patch.misfit()
        state = "hit" if hits else misfit or ("needed" if patch.needed() else "retired")
        diff = "" if misfit else patch.diff()  # of code it was not written for there is none
        rows.append(PatchRow(patch.subject, patch.why, patch.link, state, hits, diff))
    return rows


@contextmanager
def _in_force(applied: Applied, place: Place) -> Iterator[None]:
    with _PLACES:
        layer = _layer(applied, place)
    try:
        yield
    finally:
        with _PLACES:
            layer.listeners.remove(applied)
            top = _top(place)
            if top is None and not layer.listeners:
                _log.warning("%s was replaced again by other code", applied.patch.subject)
                layer.undo()
            # What lies below another's replacement stays there, unheard, until that one goes.
            while top is not None and not top.listeners:
                top.undo()
                top = _top(place)


def _layer(applied: Applied, place: Place) -> _Layer:
    """The layer of a patch in a place: the one an outer block has put there, or a new one."""
    found = place.read()
    layer: _Layer | None = getattr(found, _MARK, {}).get(applied.patch)
    if layer is not None:
        layer.listeners.append(applied)
        return layer
    listeners = [applied]
    patched = _counted(applied.patch, found, listeners)
    layer = _Layer(patched, listeners, place.write(patched))
    setattr(patched, _LAYER, layer)
    setattr(patched, _MARK, {**getattr(found, _MARK, {}), applied.patch: layer})
    if place.read() is not patched:
        layer.undo()
        raise UsageError(f"patch {applied.patch.subject}: it cannot be replaced here")
    return layer


def _top(place: Place) -> _Layer | None:
    """The layer that is called in a place; ``None`` when that is other code."""
    found = place.read()
    layer: _Layer | None = getattr(found, _LAYER, None)
    # A wrapper around ours has its attributes too.
    return layer if layer is not None and layer.patched is found else None


def _counted(
    patch: Patch, found: Callable[..., Any], listeners: list[Applied]
) -> Callable[..., Any]:
    replacement = patch.replace(found)

    # Dynamo calls it for real while it traces, so that strict export counts too.
    @torch.compiler.assume_constant_result  # type: ignore[untyped-decorator]  # of torch
    def count() -> None:
        _HITS[patch] = _HITS.get(patch, 0) + 1
        for one in listeners:
            one.hits += 1

    @functools.wraps(found)
    def patched(*args: Any, **kwargs: Any) -> Any:
        if not listeners or (patch.acts is not None and not patch.acts(*args, **kwargs)):
            return found(*args, **kwargs)
        count()
        return replacement(*args, **kwargs)

    original = getattr(found, "__torchferry_original__", found)
    patched.__torchferry_original__ = original  # type: ignore[attr-defined]  # read by Patch
    return patched


def _as_patches(given: Patch | type[Any]) -> list[Patch]:
    if isinstance(given, Patch):
        return [given]
    names = getattr(given, "_PATCHES_", None)
    cls = getattr(given, "_PATCHED_CLASS_", None)
    if not isinstance(given, type) or not names or not isinstance(cls, type):
        raise UsageError(
            f"custom_patches: {given!r} is no torchferry.capturer.Patch and no class with "
            "_PATCHES_ (names of methods) and _PATCHED_CLASS_ (the class they replace those of)"
        )
    absent = [name for name in names if not hasattr(given, name) or not hasattr(cls, name)]
    if absent:
        raise UsageError(
            f"custom_patches: {given.__qualname__} names {', '.join(absent)}, which it or "
            f"{cls.__qualname__} does not have"
        )
    return [_method_patch(given, cls, name) for name in names]


def _method_patch(given: type[Any], cls: type[Any], name: str) -> Patch:
    return Patch(
        subject=f"{cls.__module__}.{cls.__qualname__}.{name}",
        why=(given.__doc__ or f"given as {given.__qualname__}").strip().splitlines()[0],
        link="",
        replace=lambda _: getattr(given, name),
        places=lambda: [Attribute(cls, name)],
    )


def _tell(patching: Patching, verbose: int) -> None:
    for one in patching.applied:
        _log.info("patch %s: %s", one.patch.subject, one.patch.why)
    for subject, reason in patching.left_out if verbose > 1 else ():
        _log.info("no patch of %s: %s", subject, reason)
