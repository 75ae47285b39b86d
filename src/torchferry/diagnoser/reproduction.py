"""A script and its tensors that fail as a piece does, by themselves and in a fresh process."""

from __future__ import annotations

import dataclasses
import enum
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file

from torchferry.capturer import export_arguments
from torchferry.diagnoser.attempt import as_module
from torchferry.diagnoser.functions import Function
from torchferry.diagnoser.source import Code, is_users
from torchferry.diagnoser.status import StatusExport
from torchferry.diagnoser.tree import Piece
from torchferry.diagnoser.widen import main_variant
from torchferry.dims.spec import shapes_source
from torchferry.errors import UsageError
from torchferry.values.flatten import flatten, structure_to_json

__all__ = ["write_reproduction"]

_SECONDS = 300  # for the script to fail
_LITERALS = (bool, int, str, bytes, type(None), torch.dtype, slice)

# What nn.Module itself keeps in its __dict__.
_OWN = frozenset(vars(torch.nn.Module()))

_EXPORTS = {
    "fx": "program = torch.export.export(\n"
    "        model, args, kwargs, dynamic_shapes=dynamic_shapes, strict=False\n    )",
    "onnx_dynamo": "torch.onnx.export(\n        model, args, kwargs=kwargs, "
    "dynamic_shapes=dynamic_shapes, dynamo=True\n    )",
    "torch_script": "torch.onnx.export(model, args, io.BytesIO(), kwargs=kwargs, dynamo=False)",
    "to_onnx": "program = torch.export.export(\n"
    "        model, args, kwargs, dynamic_shapes=dynamic_shapes, strict=False\n    )\n"
    "    torchferry.convert(program)",
}
_IMPORTS = {"torch_script": "import io", "to_onnx": "import torchferry"}

_SCRIPT = '''"""{title}

{reason}

    python {name}.py
"""

from __future__ import annotations

{imports}


def module(cls, attributes, parameters, buffers, children, training):
    """A module with this state, made without its __init__."""
    made = cls.__new__(cls)
    torch.nn.Module.__init__(made)
    for name, value in attributes.items():
        made.__dict__[name] = value
    for name, value in parameters.items():
        made.register_parameter(name, None if value is None else torch.nn.Parameter(value, False))
    for name, value in buffers.items():
        made.register_buffer(name, value)
    for name, value in children.items():
        made.add_module(name, value)
    made.training = training
    return made


{code}


tensors = load_file(Path(__file__).with_suffix(".safetensors"))
model = {model}
{method}args = {args}
kwargs = {kwargs}
{registered}dynamic_shapes = {shapes}

print(type(model(*copy.deepcopy(args), **copy.deepcopy(kwargs))))  # PyTorch runs it
with torch.no_grad(), _config.patch(backed_size_oblivious=True):
    {export}
'''

_METHOD = """

class Method(torch.nn.Module):
    def __init__(self, module):
        super().__init__()
        self.module = module
        self.forward = module.{name}


model = Method(model)
"""


def write_reproduction(piece: Piece, status: StatusExport, exporter: str, folder: Path) -> Path:
    """Write ``PIECE.py`` and ``PIECE.safetensors``, and see that they fail as the piece does.

    The script holds the user's classes (library classes are imported), rebuilds the module from
    its attributes and weights, and calls the exporter with the recorded inputs.

    Args:
        piece: a culprit.
        status: what came of it.
        exporter: how it was tried.
        folder: where to write; made when it is not there.

    Returns:
        The script.

    Raises:
        UsageError: the code or the inputs cannot be written, or the script does not fail in the
            same way; it is kept, to be looked at.
    """
    if status.step != "EXPORT":
        raise UsageError(
            f"it fails in step {status.step}: only failures of the export itself are written down"
        )
    folder.mkdir(parents=True, exist_ok=True)
    script = folder / f"{piece.custom_op_name.removeprefix('C_')}.py"
    writer = _Writer(Code())
    text = _script(piece, status, exporter, script.stem, writer)
    save_file(writer.tensors, script.with_suffix(".safetensors"))
    script.write_text(text, "utf-8")
    _check(script, status)
    return script


def _script(piece: Piece, status: StatusExport, exporter: str, name: str, writer: _Writer) -> str:
    _, found = main_variant(piece)
    if isinstance(piece.model, Function):
        raise UsageError(
            f"{piece.model.place} is a function: call it by itself on what "
            "trace_execution_piece_by_piece recorded of it"
        )
    model = as_module(piece.model, piece.method_name)
    args, kwargs, shapes = export_arguments(model, found.seen, torch.export.Dim.DYNAMIC)
    made = writer.module(piece.model)
    given = writer.value(args), writer.value(kwargs)
    code = writer.code
    code.imports |= {
        "import copy", "import torch", "from pathlib import Path", "from torch.export import Dim",
        "from safetensors.torch import load_file", "from torch.fx.experimental import _config",
    }  # fmt: skip
    if exporter in _IMPORTS:
        code.imports.add(_IMPORTS[exporter])
    method = "" if piece.method_name == "forward" else _METHOD.format(name=piece.method_name)
    return _SCRIPT.format(
        title=f"{piece.full_name} cannot be exported ({exporter})",
        reason=status.reason.splitlines()[0].replace('"""', "'''").replace("\\", "\\\\"),
        name=name,
        imports="\n".join(sorted(code.imports)),
        code="\n\n\n".join(code.definitions.values()),
        model=made,
        method=method,
        args=given[0],
        kwargs=given[1],
        registered="".join(f"{line}\n" for line in sorted(writer.registered)),
        shapes=shapes_source(shapes),
        export=_EXPORTS[exporter],
    )


def _check(script: Path, status: StatusExport) -> None:
    """Run the script; it has to fail for the same reason, or at the same line of code."""
    try:
        done = subprocess.run(  # noqa: S603  (our own script)
            [sys.executable, str(script.resolve())],
            capture_output=True, text=True, timeout=_SECONDS, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired as error:
        raise UsageError(f"{script} did not end within {_SECONDS} s") from error
    said = done.stderr
    code = status.line.partition(": ")[2] if status.line else ""
    first = status.reason.splitlines()[0]
    same = (
        first in said
        or (code and code in said)
        or ("was fixed to" in first and ("Constraints violated" in said or "specialized" in said))
    )
    if done.returncode == 0 or not done.stdout or not same:
        last = (said.strip().splitlines() or ["nothing"])[-1]
        what = "does not fail" if done.returncode == 0 else f"fails otherwise: {last[:200]}"
        raise UsageError(f"{script} was written, but by itself it {what}")


class _Writer:
    """Writes values as Python; tensors go beside it.

    Attributes:
        code: what the script needs.
        tensors: by the names the script has for them.
        registered: lines that register classes with PyTorch's pytrees.
    """

    def __init__(self, code: Code) -> None:
        self.code = code
        self.tensors: dict[str, torch.Tensor] = {}
        self.registered: set[str] = set()

    def module(self, module: torch.nn.Module) -> str:
        """A module, without its constructor."""
        attributes = {n: v for n, v in vars(module).items() if n not in _OWN and n != "forward"}
        shown = {}
        for name, value in attributes.items():
            try:
                shown[name] = self.value(value)
            except UsageError:  # often a thing for training; if it matters the check tells
                continue
        children = {n: self.module(m) for n, m in module._modules.items() if m is not None}
        parts = [
            self.code.refer(type(module)),
            _mapping(shown),
            _mapping({n: self.value(p) for n, p in module._parameters.items()}),
            _mapping({n: self.value(b) for n, b in module._buffers.items()}),
            _mapping(children),
            repr(module.training),
        ]
        return f"module({', '.join(parts)})"

    def value(self, value: Any) -> str:
        """Any value.

        Raises:
            UsageError: it has no form in Python.
        """
        if isinstance(value, torch.Tensor):
            return self.tensor(value)
        if isinstance(value, torch.nn.Module):
            return self.module(value)
        if type(value) is float:
            return f"float({str(value)!r})"
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
            extra = getattr(value, "_attn_implementation_internal", None)
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
