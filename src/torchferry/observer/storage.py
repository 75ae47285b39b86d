"""What a `steal_forward` block stores: values as they are at one moment, up to a limit."""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from torchferry.errors import UsageError
from torchferry.observer.trace import Trace
from torchferry.values.flatten import flatten

if TYPE_CHECKING:
    from torchferry.dumper.store import DumpWriter, Key

__all__ = ["Storage", "open_storage", "steal_append"]


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
        skipped: why each other value was left out.
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
            size = _bytes_of(value)
            if size > self.left:
                return 0, f"size {size // 1024}Kb, storage_limit leaves {self.left // 1024}Kb"
            return self.writer.add(key, value), ""
        except UsageError as error:
            if isinstance(error.__cause__, OSError):  # a full disk: the next value fails as well
                raise
            return 0, str(error)


# Of the blocks that have a dump, the innermost last.
_OPEN: list[Storage] = []


@contextmanager
def open_storage(
    path: str | Path, limit: int, drop: Collection[str], trace: Trace
) -> Iterator[Storage]:
    """Open a dump for `steal_forward` and `steal_append`.

    The dump is written when the block ends, also by an exception, but not when it is interrupted.

    Raises:
        UsageError: the dump cannot be written.
    """
    from torchferry.dumper.store import open_dump  # loads onnx, which watching does not need

    with ExitStack() as stack:
        store = Storage(stack.enter_context(open_dump(path)), limit, drop, trace)
        _OPEN.append(store)
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


def steal_append(name: str, obj: Any) -> None:
    """Store a value of one's own in the dump of the innermost `steal_forward` block that has one.

    Outside such blocks, and while a compiler traces, nothing happens: the line may stay in the
    code of a model.

    Args:
        name: its key in the dump; ``name_1``, ``name_2`` ... when it is taken.
        obj: any value a dump can hold.
    """
    if not torch.compiler.is_compiling():
        for storage in _OPEN[-1:]:
            storage.append(name, obj)


def _bytes_of(value: Any) -> int:
    """Bytes of all its tensors and arrays; what several share is counted for each."""
    leaves = {id(leaf): leaf for _, leaf in flatten(value)[0]}.values()
    return sum(leaf.nbytes for leaf in leaves if isinstance(leaf, torch.Tensor | np.ndarray))
