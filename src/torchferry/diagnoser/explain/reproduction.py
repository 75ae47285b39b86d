"""A script and its tensors that fail as a piece does, by themselves and in a fresh process."""

from __future__ import annotations

import dataclasses
import enum
import re
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file

from torchferry.capturer import export_arguments
from torchferry.diagnoser.explain.source import Code, is_users
from torchferry.diagnoser.explain.template import (
    CHECK,
    ENTRY,
    EXPORTS,
    HEADS,
    IMPORTS,
    METHOD,
    MORE_IMPORTS,
    OPTIONS,
    SCRIPT,
    STRICT,
)  # fmt: skip
from torchferry.diagnoser.record.functions import Function
from torchferry.diagnoser.record.tree import Piece
from torchferry.diagnoser.trial.made import arguments_of, unexportable
from torchferry.diagnoser.trial.option import Options
from torchferry.diagnoser.trial.status import StatusExport
from torchferry.diagnoser.trial.trial import compared_calls, inputs_of, tried
from torchferry.dims.spec import shapes_source
from torchferry.errors import UsageError
from torchferry.seams.huggingface import attention_of
from torchferry.seams.pytorch import buffers_of, hooks_of, modules_of, parameters_of
from torchferry.values.flatten import flatten, structure_to_json

__all__ = ["write_reproduction"]

_SECONDS = 300  # for the script to fail
_STEPS = ("EXPORT", "EVAL", "DISC", "CRASH")
_GUARDS = ("Guard failed", "Expected input at")
_LEAST = 1e-6  # a difference of what never repeats itself
_LITERALS = (bool, int, str, bytes, type(None), torch.dtype, slice)

_BY_TEXT = {float: "float", torch.device: "torch.device"}

# What nn.Module itself keeps in its __dict__.
_OWN = frozenset(vars(torch.nn.Module()))


def write_reproduction(piece: Piece, status: StatusExport, options: Options, folder: Path) -> Path:
    """Write ``PIECE.py`` and ``PIECE.safetensors``, and see that they fail as the piece does.

    The script holds the user's classes (library classes are imported), rebuilds the module from
    its attributes and weights, and calls the exporter with the recorded inputs.

    Args:
        piece: a culprit.
        status: what came of it.
        options: how it was tried.
        folder: where to write; made when it is not there.

    Returns:
        The script.

    Raises:
        UsageError: it took too long or too much memory, which no script shows; the code or the
            inputs cannot be written; or the script does not fail in the same way: it is kept.
    """
    if status.step not in _STEPS:
        raise UsageError(
            f"it fails in step {status.step}: a script shows failures in {', '.join(_STEPS)}"
        )
    folder.mkdir(parents=True, exist_ok=True)
    script = folder / f"{piece.custom_op_name.removeprefix('C_')}.py"
    writer = _Writer(Code())
    text = _script(piece, status, options, script.stem, writer)
    save_file(writer.tensors, script.with_suffix(".safetensors"))
    script.write_text(text, "utf-8")
    _check(script, status)
    return script


def _script(
    piece: Piece, status: StatusExport, options: Options, name: str, writer: _Writer
) -> str:
    exporter = options.exporter
    if isinstance(piece.model, Function):
        raise UsageError(
            f"{piece.model.place} is a function: call it by itself on what "
            "trace_execution_piece_by_piece recorded of it"
        )
    variant, found = tried(piece, options)
    model, seen, taken = inputs_of(piece, found.seen)
    args, kwargs, shapes = export_arguments(model, seen, torch.export.Dim.DYNAMIC)
    made = writer.module(piece.model)
    given = writer.value(args), writer.value(kwargs)
    all_named = found.seen.normalized(found.seen.best)[1]
    held = {} if args else {n: writer.value(v) for n, v in unexportable(all_named).items()}
    check = ""
    if status.step != "EXPORT":
        call = compared_calls(variant, found)[status.call or 0]
        others = arguments_of(model, seen, taken(call))
        _Writer(writer.code, registered=writer.registered).value(call.outputs)
        check = CHECK.format(
            args=writer.value(others[0]),
            kwargs=writer.value(others[1]),
            atol=_allowed(status),
            times=1 + status.unsteady,
        )
    code = writer.code
    code.imports |= IMPORTS | MORE_IMPORTS.get(exporter, set())
    what = "gives other numbers" if status.step == "DISC" else "cannot be exported"
    axes = status.dynamic_shapes if exporter == "torch_script" else None
    return SCRIPT.format(
        title=f"{piece.full_name} {what} ({exporter})",
        reason=status.reason.splitlines()[0].replace('"""', "'''").replace("\\", "\\\\"),
        name=name,
        imports="\n".join(sorted(code.imports)),
        code="\n\n\n".join(code.definitions.values()),
        model=made,
        entry=_entry(piece, args, kwargs, held),
        args=given[0],
        kwargs=given[1],
        registered="".join(f"{line}\n" for line in sorted(writer.registered)),
        shapes=shapes_source(shapes) if exporter != "torch_script" else repr(axes),
        head=HEADS.get(exporter, "") + STRICT * (exporter == "torch_script" and not check),
        export=EXPORTS[exporter].replace(OPTIONS, _options(options)),
        check=check,
    )


def _options(options: Options) -> str:
    """The exporter's own options, as more arguments; non-strict is what `capture` begins with."""
    given = {"strict": False} if options.exporter == "fx" else {}
    return "".join(f", {n}={v!r}" for n, v in (given | dict(options.exporter_kwargs)).items())


def _entry(
    piece: Piece, args: tuple[Any, ...], kwargs: dict[str, Any], held: dict[str, str]
) -> str:
    """What stands between the exporter and the module; see `as_module`."""
    if piece.method_name != "forward":
        return METHOD.format(name=piece.method_name)
    if (piece.entry == "forward" and not held) or args:
        return ""
    names = dict(zip(kwargs, kwargs, strict=True))
    by_place, by_name = piece.placed(args, names)
    given = ", ".join((*by_place, *(f"{name}={text}" for name, text in (by_name | held).items())))
    return ENTRY.format(names=", ".join(kwargs), given=given)


def _allowed(status: StatusExport) -> float:
    """Half the difference that was seen, where it has a size."""
    seen = re.search(r"\bmax abs ([0-9.e+-]+)", status.reason)
    return float(seen[1]) / 2 if seen and not status.unsteady else _LEAST


def _check(script: Path, status: StatusExport) -> None:
    """Run the script; it has to fail for the same reason, or at the same line of code."""
    try:
        done = subprocess.run(  # noqa: S603  (our own script)
            [sys.executable, str(script.resolve())],
            capture_output=True, text=True, timeout=_SECONDS, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired as error:
        raise UsageError(f"{script} did not end within {_SECONDS} s") from error
    if done.returncode == 0 or not done.stdout or not _alike(status, done):
        last = (done.stderr.strip().splitlines() or ["nothing"])[-1]
        what = "does not fail" if done.returncode == 0 else f"fails otherwise: {last[:200]}"
        raise UsageError(f"{script} was written, but by itself it {what}")


def _alike(status: StatusExport, done: subprocess.CompletedProcess[str]) -> bool:
    """Whether a script failed as the piece did."""
    said = _without_places(done.stderr)
    if status.step == "DISC":
        return "AssertionError" in said and bool(re.search(r"not close|do not match|equal", said))
    if status.step == "CRASH":
        return done.returncode < 0 or status.reason.endswith(f"exit code {done.returncode}")
    first = _without_places(status.reason.splitlines()[0])
    if first.startswith(_GUARDS):
        return any(guard in said for guard in _GUARDS)
    code = status.line.partition(": ")[2] if status.line else ""
    return (
        first in said
        or (code != "" and code in said)
        or ("was fixed to" in first and ("Constraints violated" in said or "specialized" in said))
    )


def _without_places(text: str) -> str:
    """A text without files: what onnxruntime was given, and where code stood before."""
    return re.sub(r"\S*torchferry-\S+|the exported file:|, at \S+:\d+", "", text)


class _Writer:
    """Writes values as Python; tensors go beside it.

    Attributes:
        code: what the script needs.
        tensors: by the names the script has for them.
        registered: lines that register classes with PyTorch's pytrees.
    """

    def __init__(self, code: Code, registered: set[str] | None = None) -> None:
        self.code = code
        self.tensors: dict[str, torch.Tensor] = {}
        self.registered: set[str] = set() if registered is None else registered

    def module(self, module: torch.nn.Module) -> str:
        """A module, without its constructor."""
        attributes = {n: v for n, v in vars(module).items() if n not in _OWN and n != "forward"}
        shown = {}
        for name, value in attributes.items():
            try:
                shown[name] = self.value(value)
            except UsageError:  # often a thing for training; if it matters the check tells
                continue
        children = {n: self.module(m) for n, m in modules_of(module).items() if m is not None}
        parts = [
            self.code.refer(type(module)),
            _mapping(shown),
            _mapping({n: self.value(p) for n, p in parameters_of(module).items()}),
            _mapping({n: self.value(b) for n, b in buffers_of(module).items()}),
            _mapping(children),
            repr(module.training),
            self._hooks(module),
        ]
        return f"module({', '.join(parts)})"

    def _hooks(self, module: torch.nn.Module) -> str:
        """What runs around its forward, as far as that can be written."""
        found = []
        for register, hooks, named in hooks_of(module):
            for number, hook in hooks.items():
                with suppress(UsageError):  # as for attributes
                    found.append(f"({register!r}, {self.value(hook)}, {number in named}), ")
        return f"[{''.join(found)}]"

    def value(self, value: Any) -> str:
        """Any value.

        Raises:
            UsageError: it has no form in Python.
        """
        if isinstance(value, torch.Tensor):
            return self.tensor(value)
        if isinstance(value, torch.nn.Module):
            return self.module(value)
        if type(value) in _BY_TEXT:
            return f"{_BY_TEXT[type(value)]}({str(value)!r})"
        if type(value) in _LITERALS:
            return repr(value)
        if type(value) is dict:
            return _mapping({key: self.value(v) for key, v in value.items()}, self.value)
        if type(value) in (tuple, list, set, frozenset):
            items = "".join(f"{self.value(item)}, " for item in value)
            return f"({items})" if type(value) is tuple else f"{type(value).__name__}([{items}])"
        if isinstance(value, type) or (callable(value) and hasattr(value, "__qualname__")):
            return self._named(value)
        return self._object(value)

    def register(self, name: str) -> None:
        """Let torch.export see inside a class, or inside all that torchferry knows."""
        self.code.imports.add("from torchferry.values import register_pytrees")
        self.registered.add(f"register_pytrees({name})")

    def tensor(self, value: torch.Tensor) -> str:
        """A tensor, stored by itself."""
        for name, known in self.tensors.items():
            if known is value:
                return f"tensors[{name!r}]"
        name = f"t{len(self.tensors)}"
        self.tensors[name] = value.detach().clone().contiguous()
        return f"tensors[{name!r}]"

    def _named(self, value: Any) -> str:
        if "<locals>" in value.__qualname__ and not is_users(value):
            raise UsageError(f"{value.__qualname__} has no name that could be imported")
        return self.code.refer(value)

    def _object(self, value: Any) -> str:
        cls = type(value)
        if isinstance(value, enum.Enum):
            return f"{self.code.refer(cls)}.{value.name}"
        if hasattr(cls, "from_dict") and hasattr(value, "to_dict"):  # transformers' configurations
            made = self.value(value.to_dict())
            extra = attention_of(value)
            attention = f", attn_implementation={extra!r}" if extra else ""
            return f"{self.code.refer(cls)}.from_dict({made}{attention})"
        if dataclasses.is_dataclass(value) and is_users(cls):
            fields = {
                f.name: self.value(getattr(value, f.name)) for f in dataclasses.fields(value)
            }
            given = ", ".join(f"{name}={text}" for name, text in fields.items())
            self.register(self.code.refer(cls))
            return f"{self.code.refer(cls)}({given})"
        leaves, structure = flatten(value)
        if structure.cls is None:
            raise UsageError(f"a {cls.__name__} has no form in Python")
        self.code.imports.add("from torchferry.values import structure_from_json, unflatten")
        self.register("")
        items = ", ".join(self.value(leaf) for _, leaf in leaves)
        return f"unflatten([{items}], structure_from_json({structure_to_json(structure)!r}))"


def _mapping(items: Mapping[Any, str], key: Any = repr) -> str:
    return "{" + ", ".join(f"{key(name)}: {text}" for name, text in items.items()) + "}"
