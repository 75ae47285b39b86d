"""What a `steal_forward` block stores: values as they are at one moment, up to a limit."""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterator
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torchferry.errors import UsageError
from torchferry.observer.extent import bytes_of
from torchferry.observer.keep import UNREADABLE
from torchferry.observer.tap import is_traced
from torchferry.observer.trace import Trace
from torchferry.values.describe import string_type

if TYPE_CHECKING:
    from torchferry.dumper.store import DumpWriter, Key

__all__ = ["Storage", "open_storage", "steal_append"]

_LISTED = 10_000  # values left out that are listed one by one: a folder may take calls for days


class Storage:
    """What goes into the dump of one block, as long as there is room.

    The dump reads a value at once, so that the model may change it afterwards. What a dump cannot
    hold, or what is too large, is left out with a line that says so.

    Args:
        writer: the dump.
        limit: bytes to store at most.
        drop: names of keyword arguments that are left out.
        trace: where it is told what is stored.

    Attributes:
        sizes: bytes stored under each key, in order.
        skipped: why each other value was left out; the first 10,000.
        left_out: how many were.
    """

    def __init__(
        self, writer: DumpWriter, limit: int, drop: Collection[str], trace: Trace
    ) -> None:
        self.writer = writer
        self.left = limit
        self.drop = {drop} if isinstance(drop, str) else set(drop)
        self.trace = trace
        self.sizes: dict[Key, int] = {}
        self.skipped: dict[Key, str] = {}
        self.left_out = 0
        self.names: set[str] = set()
        self.lock = threading.Lock()

    def inputs(
        self, name: str, iteration: int, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> None:
        """Store the arguments of a call, before it begins."""
        kept = {key: value for key, value in kwargs.items() if key not in self.drop}
        self.put((name, iteration, "I"), (args, kept))

    def outputs(self, name: str, iteration: int, outputs: Any) -> None:
        """Store what a call returned."""
        self.put((name, iteration, "O"), outputs, shown=(name, iteration))

    def append(self, name: str, obj: Any) -> None:
        """Store a value of the user's, under its name and a number if need be."""
        with self.lock:
            key, number = name, 0
            while key in self.names:
                number += 1
                key = f"{name}_{number}"
            self.names.add(key)
        self.put(key, obj, shown=key)

    def put(self, key: Key, value: Any, shown: Any = None) -> None:
        """Store a value and say so if it is ``shown`` under a key, or why it is not stored."""
        with self.lock:
            size, refused = self._try(key, value)
            if refused:
                self.left_out += 1
                if len(self.skipped) < _LISTED:
                    self.skipped[key] = refused
            else:
                self.left -= size
                self.sizes[key] = size
        if refused:
            self.trace.skips(key, refused, value)
        elif shown is not None:
            self.trace.stores(shown, size, value)

    def _try(self, key: Key, value: Any) -> tuple[int, str]:
        """The bytes that were stored, or why they were not."""
        try:
            size = bytes_of(value)
            if size > self.left:
                return 0, f"size {size // 1024}Kb, storage_limit leaves {self.left // 1024}Kb"
            return self.writer.add(key, value), ""
        except UNREADABLE as error:
            if isinstance(error.__cause__, OSError):  # a full disk: the next value fails as well
                raise
            if isinstance(error, UsageError):
                return 0, str(error)
            return 0, f"it cannot be read: {type(error).__name__}: {error}"[:500]


# Of the blocks that have a dump, the innermost last: those of all threads, those of this one.
_OPEN: list[Storage] = []
_MINE: ContextVar[tuple[Storage, ...]] = ContextVar("_MINE", default=())


@contextmanager
def open_storage(
    path: str | Path, limit: int, drop: Collection[str], trace: Trace
) -> Iterator[Storage]:
    """Open a dump for `steal_forward` and `steal_append`.

    The dump is written when the block ends, also by an exception, but not when it is interrupted.

    Raises:
        UsageError: the limit is no number of bytes, ``drop`` holds no names, or the dump cannot
            be written.
    """
    _check(limit, drop)
    from torchferry.dumper.store import open_dump  # loads onnx, which watching does not need

    with ExitStack() as stack:
        store = Storage(stack.enter_context(open_dump(path)), limit, drop, trace)
        _OPEN.append(store)
        # Not reset by token: a block may be left in another context than it was entered in.
        _MINE.set((*(one for one in _MINE.get() if one in _OPEN), store))
        try:
            yield store
        except Exception:
            # The dump is written all the same: what came before the failure is what one looks for.
            stack.pop_all().close()
            raise
        finally:
            _OPEN.remove(store)
        size = sum(store.sizes.values()) // 2**20
        trace.notes(f"gather stored {len(store.sizes)} objects, size={size} Mb")
        trace.notes("dumps stored objects")
    trace.notes("done dump stored objects")


def _check(limit: Any, drop: Any) -> None:
    if type(limit) is not int or limit < 0:
        raise UsageError(f"storage_limit is a number of bytes, not {limit!r:.80}")
    if not isinstance(drop, Collection) or not all(isinstance(name, str) for name in drop):
        raise UsageError(
            f"dump_drop takes names of keyword arguments, not {string_type(drop)}: "
            'give a list of them, as ["attention_mask"]'
        )


def steal_append(name: str, obj: Any) -> None:
    """Store a value of one's own in the dump of the innermost `steal_forward` block that has one.

    That is the innermost of those this thread entered; a thread that entered none has that of all
    threads. Outside such blocks, and while a tracer or compiler is at work, nothing happens: the
    line may stay in the code of a model.

    Args:
        name: its key in the dump; ``name_1``, ``name_2`` ... when it is taken.
        obj: any value a dump can hold.
    """
    if is_traced() or not _OPEN:
        return
    mine = [one for one in _MINE.get() if one in _OPEN]
    for storage in (mine or _OPEN)[-1:]:
        storage.append(name, obj)
