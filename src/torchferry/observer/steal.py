"""Watch modules from inside any code that runs them: print every call, store its values.

Results stay as they are, and so does the signature of the watched method; it is restored on
leaving. While torch.export traces, only the line that says which module is entered is printed, so
that the last one shows where an export failed; while anything else traces or compiles, nothing
is. Blocks may be nested, and calls may come from several threads. A value that no dump can hold
is skipped, and a line says so; views of one tensor are stored with all that lies between them.

>>> model = torch.nn.Sequential(torch.nn.Linear(2, 3))
>>> with steal_forward(("model", model), submodules=True, dump_file="calls.onnx"):
...     _ = model(torch.zeros(4, 2))
+model -- stolen forward for class Sequential -- iteration 0
  <- args=(T1s4x2,) --- kwargs={}
+model.0 -- stolen forward for class Linear -- iteration 0
  <- args=(T1s4x2,) --- kwargs={}
  -> T1s4x3
-model.0.
  -> T1s4x3
-model.

In a dump, a call's ``(args, kwargs)``, as they were before it, stand under
``(name, iteration, "I")``, what it returned under ``(name, iteration, "O")``:

>>> from torchferry.dumper.store import read_dump
>>> list(read_dump("calls.onnx"))
[('model', 0, 'I'), ('model.0', 0, 'I'), ('model.0', 0, 'O'), ('model', 0, 'O')]
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import torch

from torchferry.errors import UsageError
from torchferry.observer.storage import Storage, open_storage
from torchferry.observer.tap import tapped
from torchferry.observer.trace import Trace
from torchferry.values.describe import string_type

__all__ = ["Watched", "steal_forward"]

Named = tuple[str, torch.nn.Module]
Modules = torch.nn.Module | Named | Iterable[torch.nn.Module | Named]


@contextmanager
# The parameters in the order in which people who know the function give them.
def steal_forward(  # noqa: PLR0917
    model: Modules,
    fprint: Callable[..., str] | None = string_type,
    dump_file: str | Path | None = None,
    dump_drop: Collection[str] | None = None,
    submodules: bool = False,
    storage_limit: int = 2**27,
    with_shape: bool = True,
    with_min_max: bool = False,
    verbose: int = 0,
    *,
    method_name: str = "forward",
    with_device: bool = False,
    limit: int = 20,
) -> Iterator[None]:
    """Print every call of a module made inside the block, and store its inputs and outputs.

    Args:
        model: a module, a ``(name, module)`` pair, or several of them. One module without a name
            is called ``""``, several are called by their place: ``"0"``, ``"1"``.
        fprint: describes a value in one line; `string_type` gets the options below, any other
            function the value alone. ``None`` prints nothing.
        dump_file: where values are stored: ``.onnx``, ``.safetensors``, or else a folder, which
            is written as the model runs. What was seen before an exception is stored too.
        dump_drop: names of keyword arguments that are not stored.
        submodules: watch all modules inside too, by their dotted path behind the name; none in a
            module of ``torch.jit``, which does not call them from Python.
        storage_limit: bytes to store at most; a larger value is skipped, and a line says so.
        with_shape: see `string_type`, as for the other three options of it.
        with_min_max: as above.
        verbose: 1 prints what is stored as well.
        method_name: the method to watch; with ``submodules``, where a submodule has it.
        with_device: as above.
        limit: as above.

    Raises:
        UsageError: no modules, two of one name, one module twice, no such method, an ``fprint``
            that is no function, or the dump cannot be written as asked.
    """
    if fprint is not None and not callable(fprint):
        raise UsageError(f"steal_forward: fprint is no function but {string_type(fprint)}")
    trace = Trace(_describe(fprint, with_shape, with_min_max, with_device, limit), verbose > 0)
    watched = _name_modules(model, method_name, submodules=submodules)
    with (
        nullcontext()
        if dump_file is None
        else open_storage(dump_file, storage_limit, dump_drop or (), trace) as store,
        tapped([Watched(n, m, method_name, trace, store) for n, m in watched.items()]),
    ):
        yield


def _describe(
    fprint: Callable[..., str] | None, shape: bool, min_max: bool, device: bool, limit: int
) -> Callable[[Any], str] | None:
    if fprint is not string_type:
        return fprint
    return lambda value: string_type(value, shape, min_max, device, limit)


class Watched:
    """The tap on one module: what it is called, and how often it was.

    Attributes:
        name: what stands in the trace and in the keys of the dump.
        module: whose method is watched.
        method: ``forward``.
        trace: told of every call.
        store: given the values of every call.
        calls: how many have begun.
    """

    def __init__(
        self, name: str, module: torch.nn.Module, method: str, trace: Trace, store: Storage | None
    ) -> None:
        self.name = name
        self.module = module
        self.method = method
        self.trace = trace
        self.store = store
        self.calls = 0
        self.lock = threading.Lock()

    def entry(self, iteration: int) -> str:
        """The line of the trace that says which call this is."""
        title = type(self.module).__name__
        return f"{self.name} -- stolen {self.method} for class {title} -- iteration {iteration}"

    def export(self) -> None:
        """See `Tap`."""
        self.trace.enters(self.entry(self.calls))

    def enter(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> int:
        """Tell of the arguments, store them, and give the number of the call."""
        with self.lock:
            iteration = self.calls
            self.calls += 1
        self.trace.enters(self.entry(iteration), (args, kwargs))
        if self.store is not None:
            self.store.inputs(self.name, iteration, args, kwargs)
        return iteration

    def leave(self, iteration: int, outputs: Any) -> None:
        """Tell of the outputs of a call and store them."""
        self.trace.leaves(self.name, outputs)
        if self.store is not None:
            self.store.outputs(self.name, iteration, outputs)


def _name_modules(model: Modules, method: str, *, submodules: bool) -> dict[str, torch.nn.Module]:
    """The modules to watch, by name."""
    named: dict[str, torch.nn.Module] = {}
    known: dict[int, str] = {}

    def add(name: str, module: torch.nn.Module) -> None:
        title = type(module).__name__
        if name in named:
            raise UsageError(f"steal_forward: two modules are called {name!r}; give other names")
        if id(module) in known:
            raise UsageError(
                f"steal_forward: {title} is given twice, as {known[id(module)]!r} and {name!r}; "
                "give each module once"
            )
        if not callable(getattr(module, method, None)):
            raise UsageError(f"steal_forward: {title} has no method {method!r} to watch")
        named[name] = module
        known[id(module)] = name

    given = _pairs(model)
    for name, module in given:
        add(name, module)
    for name, module in given if submodules else ():
        for path, child in module.named_modules():
            # A module that was given a name keeps it; one without the method is never called.
            if id(child) not in known and callable(getattr(child, method, None)):
                add(f"{name}.{path}" if name else path, child)
    return named


def _pairs(model: Any) -> list[Named]:
    """What was given as ``(name, module)`` pairs."""
    match model:
        case torch.nn.Module() | (str(), torch.nn.Module()):
            given = [model]
        case Iterable():
            given = list(model)
        case _:
            given = []
    pairs: list[Named] = []
    for index, item in enumerate(given):
        match item:
            case torch.nn.Module():
                pairs.append(("" if len(given) == 1 else str(index), item))
            case (str(name), torch.nn.Module() as module):
                pairs.append((name, module))
            case _:
                pairs.clear()
                break
    if not pairs:
        raise UsageError(
            "steal_forward takes a module, a (name, module) pair or a list of them, "
            f"not {string_type(model)}"
        )
    return pairs
