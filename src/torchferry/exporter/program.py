"""The result of an export: a model that can be looked at, saved and called."""

from __future__ import annotations

import shutil
import tempfile
import threading
import weakref
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import onnx_ir as ir
import torch
from torch.export import ExportedProgram

from torchferry.converter.weight import read_marks
from torchferry.errors import UsageError
from torchferry.graph import io
from torchferry.graph.outline import STATE_KEY
from torchferry.notebook import table_html
from torchferry.report.model import Report
from torchferry.report.quantity import counted
from torchferry.runner import Session
from torchferry.values.step import read_state

__all__ = ["OnnxProgram", "load"]


@dataclass(repr=False)
class OnnxProgram:
    """An exported model.

    Called with the original model's arguments (nested, caches included), it runs onnxruntime and
    returns what the original returns, as torch tensors. Where the state of the model was lifted,
    the program carries it from call to call; a call that fails leaves it as it was. Threads may
    share a program: its calls run one after the other then.

    Attributes:
        model: the ``onnx_ir`` model.
        program: the ``ExportedProgram`` it came from; ``None`` for a loaded file.
        report: what the export found; ``None`` for a loaded file.
        path: where it was saved or loaded from.
        state: the state that the next call begins with, by name; empty for a model without lifted
            state. Its items may be set.
    """

    model: ir.Model
    program: ExportedProgram | None = None
    report: Report | None = None
    path: Path | None = None
    _stamp: tuple[int, ...] | None = field(default=None, init=False, compare=False)
    _source: tuple[Path, tuple[int, ...]] | None = field(default=None, init=False, compare=False)
    _marks: dict[str, tuple[Any, ...]] = field(init=False, compare=False)
    state: dict[str, torch.Tensor] = field(init=False, compare=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, init=False, compare=False)

    def __post_init__(self) -> None:
        self._marks = read_marks(self.model)
        self.reset()

    def __repr__(self) -> str:
        """How large the model is, what the export found, and where it is saved."""
        nodes = counted(len(self.model.graph), "node")
        checked = "" if self.report is None else f", ok={self.report.ok}"
        saved = "" if self.path is None else f", path={str(self.path)!r}"
        return f"OnnxProgram({nodes}{checked}{saved})"

    def _repr_html_(self) -> str:
        graph = self.model.graph
        rows = tuple(
            (kind, value.name, value.type, value.shape)
            for kind, values in (("input", graph.inputs), ("output", graph.outputs))
            for value in values
        )
        table = table_html(repr(self), ("kind", "name", "type", "shape"), rows)
        checked = "" if self.report is None else self.report._repr_html_()
        return table + checked

    def save(self, path: Path | str) -> Path:
        """Write the model, with its weights beside it in ``NAME.onnx_data``.

        An existing file is replaced only when the new one is whole.

        Args:
            path: a file ending in ``.onnx``, in a folder that exists.

        Raises:
            UsageError: the path cannot be written; the weights of the PyTorch model have changed
                since the export; or the file that this was loaded from, which holds the weights,
                is another one now.
        """
        path = Path(path)
        if path.suffix != ".onnx":
            raise UsageError(f"cannot save to {path}: give a file name that ends in .onnx")
        if self._source is not None and self._source[1] != _stamp(self._source[0]):
            raise UsageError(
                f"{self._source[0]} was replaced since it was loaded, and its weights are read "
                "from there: load it again"
            )
        self._check_weights()
        io.save(self.model, path)
        self.path, self._stamp = path, _stamp(path)
        if self._source is not None and self._source[0] == path:
            self._source = path, self._stamp
        return path

    def __reduce_ex__(self, protocol: Any) -> Any:
        """Refuse copies and pickles, of which onnxruntime's sessions have none.

        Raises:
            UsageError: always.
        """
        raise UsageError(
            "an OnnxProgram cannot be copied or pickled: save it, and load the file where it is "
            "needed"
        )

    @cached_property
    def session(self) -> Session:
        """The onnxruntime session that calls use.

        A model that was not saved, or whose file is another one now, is saved to a temporary file.

        Raises:
            RunError: onnxruntime cannot load the model.
        """
        if self.path is not None and self._stamp in (None, _stamp(self.path)):
            return Session(self.path)
        self._check_weights()
        folder = tempfile.mkdtemp(prefix="torchferry-")
        weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)
        temporary = Path(folder) / "model.onnx"
        io.save(self.model, temporary)
        return Session(temporary)

    def _check_weights(self) -> None:
        """Refuse weights that are not those of the export: they are views of PyTorch's tensors."""
        now = read_marks(self.model)
        changed = [name for name, mark in self._marks.items() if now.get(name, mark) != mark]
        if changed:
            raise UsageError(
                f"the weights of the PyTorch model have changed since it was exported, "
                f"{changed[0]} among them: export it again, or save the program before they change"
            )

    def reset(self) -> None:
        """Put the initial state back: the state that the model had when it was exported.

        Raises:
            UsageError: the model's metadata cannot be read.
        """
        text = self.model.metadata_props.get(STATE_KEY)
        self.state = {} if text is None else read_state(text)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run onnxruntime with the original model's arguments.

        Raises:
            UsageError: the arguments or the state do not fit.
            RunError: onnxruntime failed.
        """
        if STATE_KEY not in self.model.metadata_props:
            return self.session(*args, **kwargs)
        with self._lock:
            step = self.session.step(self.state, args, kwargs)
            self.state = {name: torch.as_tensor(v) for name, v in step.state_next.items()}
        return step.outputs


def _stamp(path: Path) -> tuple[int, ...]:
    """What tells whether a file is another one now; nothing where there is none."""
    if not path.is_file():
        return ()
    stat = path.stat()
    return stat.st_ino, stat.st_mtime_ns, stat.st_size


def load(path: Path | str) -> OnnxProgram:
    """Read a model that `OnnxProgram.save` or ``torchferry export`` wrote; executes nothing.

    Args:
        path: the ``.onnx`` file, or the folder that holds ``model.onnx``.

    Raises:
        UsageError: there is no such file, or it was not written by torchferry.
        RunError: onnxruntime cannot load it.
    """
    path = Path(path)
    path = path / "model.onnx" if path.is_dir() else path
    loaded = OnnxProgram(io.load(path), path=path)
    loaded._source = path, _stamp(path)
    loaded.session  # noqa: B018  (a foreign or broken file fails here, not at the first call)
    return loaded
