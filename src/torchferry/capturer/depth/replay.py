"""Run a layer's Python beside the notes of others, and compute nothing while it does the same.

Each call of torch is compared with the notes and answered with a stand-in. At the first call that
no note has, one operator in the trace takes the place of all calls until then, and what follows is
traced as always: the Python of a layer runs once, whatever it does besides.
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from torchferry.capturer.depth.note import SYMBOLS, Form, Note, can_rebuild, parts_of, rebuild
from torchferry.seams.layers import LAYER, LEAVE, constant_of, new_wrapper, without_functions
from torchferry.seams.pytorch import FakeTensor, without_modes

__all__ = ["Escaped", "Replay", "StandIn", "resolved"]


_PURE = (torch.device, torch.promote_types, torch.can_cast)


class Escaped(Exception):  # noqa: N818  # nothing failed: the model is traced without notes
    """Code uses a stand-in where nobody compares what it does with it."""


class StandIn(torch.Tensor):
    """What a call of torch returns while it is only compared.

    Attributes:
        replay: whose call it was.
        number: which of the results.
        noted: the result of the same call in the layer that was traced.
        actual: the tensor it stands for, as soon as there is one.
    """

    replay: Replay
    number: int
    noted: torch.Tensor | None
    actual: torch.Tensor | None
    device = property(lambda self: self.noted.device)  # reading it is no call of torch

    @staticmethod
    def __new__(cls, replay: Replay, number: int, noted: torch.Tensor | None) -> StandIn:
        """Make one."""
        made: StandIn = new_wrapper(cls)
        made.replay, made.number, made.noted, made.actual = replay, number, noted, None
        return made

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Call a function with the tensors that stand-ins stand for."""
        return func(*resolved(args), **resolved(kwargs or {}))

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]  # as torch calls it
        cls, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        """Do the same where a mode has torch call operators directly."""
        return func(*resolved(args), **resolved(kwargs or {}))


def resolved(value: Any) -> Any:
    """A value with tensors in the place of stand-ins; lists and dicts are changed in place.

    Raises:
        Escaped: there is no tensor yet.
    """
    if isinstance(value, StandIn):
        if value.actual is None:
            value.replay.escaped = True
            raise Escaped(f"a result of {value.replay.path} is used before the layer is traced")
        return value.actual
    inner = parts_of(value)
    if inner is None:
        return value
    now = [resolved(one) for one in inner]
    if all(a is b for a, b in zip(inner, now, strict=True)):
        return value
    if isinstance(value, list):
        value[:] = now
        return value
    if isinstance(value, dict):
        for key, one in zip(now[::2], now[1::2], strict=True):
            value[key] = one
        return value
    if not can_rebuild(value):
        raise Escaped(f"a {type(value).__name__} holds a result and more")
    return rebuild(type(value), now)


class Replay(TorchFunctionMode):
    """Follow the calls of a layer along notes of others; note them where no note goes on.

    Args:
        path: of the layer.
        ambient: the state of torch that it begins in.
        notes: of layers like it.
        new: whether what no note has is to be noted.

    Attributes:
        count: the calls that were compared.
        reason: why it was not compared to the end; ``""`` while it is.
        note: what is noted; ``None`` while all is compared.
        escaped: whether a stand-in was used where it must not be.
    """

    def __init__(self, path: str, ambient: Any, notes: Sequence[Note], new: bool) -> None:
        """Begin."""
        super().__init__()
        self.path = path
        self.ambient = ambient
        self.new = new
        self.count = 0
        self.reason = ""
        self.escaped = False
        self.note: Note | None = None
        self._rivals = [_Rival(note, self) for note in notes if note.ambient == ambient]
        self._handed_out: dict[int, weakref.ref[StandIn]] = {}
        if not self._rivals:
            self._trace("" if not notes else "it runs in another state of torch")

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Compare a call, or make and note it."""
        kwargs = kwargs or {}
        if func in _PURE or getattr(func, "__name__", "").startswith("sym_"):
            return func(*args, **kwargs)  # no tensors: of sizes and types alone
        if self.note is None:
            reasons = [one.differs(self.count, func, args, kwargs) for one in self._rivals]
            agreed = [one for one, why in zip(self._rivals, reasons, strict=True) if not why]
            if agreed:
                self._rivals = agreed
                self.count += 1
                return self._answer(agreed[0], agreed[0].note.calls[self.count - 1].result)
            note = self._trace(f"call {self.count + 1}: {reasons[0]}")
        else:
            note = self.note
        return note.record(func, resolved(args), resolved(kwargs))

    def finish(self) -> str:
        """Give stand-ins that are still in use their tensors.

        Returns:
            the path of the layer that it repeats; ``""`` if it does not.
        """
        if self.note is not None:
            self.note.finish()
            if not self.note.flaw:
                LEAVE(self.path)
            return ""
        ended = [one for one in self._rivals if len(one.note.calls) == self.count]
        best = (ended or self._rivals)[0]
        self._stamp(best)
        LEAVE(self.path)
        if not ended:
            self.reason = f"it ends after call {self.count}"
        return best.note.path if ended else ""

    def _trace(self, reason: str) -> Note:
        """From here on calls are made; those before are put into the trace at once."""
        self.reason = reason
        note = Note(self.path, self.ambient)
        if self._rivals and self.count:
            best = self._rivals[0]
            made = self._stamp(best)
            given = best.bound[: best.note.begun(self.count)[0]]
            note.begin_as(best.note, self.count, given, made)
        note.flaw = note.flaw or ("" if self.new else "there are enough notes")
        self.note = note
        self._rivals = []
        return note

    def _stamp(self, rival: _Rival) -> dict[int, torch.Tensor]:
        found = {number: ref() for number, ref in sorted(self._handed_out.items())}
        alive = {number: one for number, one in found.items() if one is not None}
        given, _, marks = rival.note.begun(self.count)
        made = LAYER(self.path, rival.note.path, rival.bound[:given], marks, [*alive])
        for one, tensor in zip(alive.values(), made, strict=True):
            one.actual = tensor
        return dict(zip(alive, made, strict=True))

    def _answer(self, rival: _Rival, result: Form) -> Any:
        kind, value = result
        if kind == "value":
            return value
        if kind == "given":
            return rival.bound[value]
        if kind != "made":
            inner = [self._answer(rival, one) for one in value]
            return iter(inner) if kind is iter else rebuild(kind, inner)
        ref = self._handed_out.get(value)
        made = None if ref is None else ref()
        if made is None:
            made = StandIn(self, value, rival.note.kept[value])
            self._handed_out[value] = weakref.ref(made)
        return made


class _Rival:
    """A note that a layer may follow, and what the layer has in the place of its tensors."""

    def __init__(self, note: Note, replay: Replay) -> None:
        self.note = note
        self.bound: list[torch.Tensor] = []
        self._replay = weakref.ref(replay)

    def differs(self, number: int, func: Any, args: Any, kwargs: Any) -> str:
        """Why a call is not the one of that number; ``""`` if it is."""
        if number == len(self.note.calls):
            return f"{self.note.path} makes no more calls"
        call = self.note.calls[number]
        if call.function is not func and call.function != func:
            return f"{self.note.path} calls another function"
        return self._compare(call.form, (args, kwargs))

    def _compare(self, form: Form, value: Any) -> str:
        kind, noted = form
        if kind == "made":
            same = isinstance(value, StandIn) and value.replay is self._replay()
            return "" if same and value.number == noted else "it takes another tensor"
        if kind == "given":
            return self._bind(noted, value)
        if kind == "value":
            if noted is value or _same(noted, value):
                return ""
            return f"it takes {_shown(value)}, not {_shown(noted)}"
        inner = parts_of(value) if type(value) is kind else None
        if inner is None or len(inner) != len(noted):
            return "it takes other arguments"
        return next(filter(None, map(self._compare, noted, inner)), "")

    def _bind(self, number: int, value: Any) -> str:
        """Take a tensor for the one that the noted layer has there."""
        if isinstance(value, StandIn) and value.actual is not None:
            value = value.actual
        if number < len(self.bound):
            return "" if self.bound[number] is value else "it takes another tensor"
        old = self.note.given[number]
        if not isinstance(value, FakeTensor):
            return "it takes a tensor that is no parameter and not computed before"
        if value is not old:
            theirs, ours = _description(old), _description(value)
            if theirs != ours:
                texts = _text(ours), _text(theirs)
                if texts[0] == texts[1]:
                    return "it takes a tensor that lies in memory otherwise"
                return f"it takes a tensor of {texts[0]}, not {texts[1]}"
            if not self._same_constant(number, value):
                return "the values of a tensor that it takes differ"
        self.bound.append(value)
        return ""

    def _same_constant(self, number: int, value: torch.Tensor) -> bool:
        """Whether values that the trace knows are equal, where code may ask for them."""
        theirs, ours = self.note.constants[number], constant_of(value)
        if number in self.note.written:
            return ours is None
        with without_modes():
            if all(one is None or (one.is_floating_point() and one.numel() > 1)
                   for one in (theirs, ours)):  # fmt: skip
                return True  # no operator takes its sizes or its way from these
            return theirs is not None and ours is not None and torch.equal(theirs, ours)


def _same(a: Any, b: Any) -> bool:
    """The same value, or the same expression of sizes: nothing is guarded."""
    if type(a) is not type(b):
        return False
    if isinstance(a, SYMBOLS):
        return bool(a.node.expr == b.node.expr)
    # 0.0 is equal to -0.0, and nan to nothing
    return repr(a) == repr(b) if isinstance(a, (float, complex)) else bool(a == b)


def _description(tensor: torch.Tensor) -> tuple[Any, ...]:
    """What a kernel knows of a tensor besides its values; sizes as expressions."""
    with without_functions():
        sizes = (*tensor.shape, *tensor.stride())
        return (
            type(tensor), tensor.dtype, tensor.device, tensor.layout, tensor.requires_grad,
            tensor.is_conj(), tensor.is_neg(),
            *(one.node.expr if isinstance(one, SYMBOLS) else one for one in sizes),
        )  # fmt: skip


def _text(description: tuple[Any, ...]) -> str:
    _, dtype, _, _, _, _, _, *sizes = description
    return f"{str(dtype).removeprefix('torch.')} and {tuple(sizes[: len(sizes) // 2])}"


def _shown(value: Any) -> str:
    return f"a {type(value).__name__}" if isinstance(value, torch.Tensor) else repr(value)[:40]
