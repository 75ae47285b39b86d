"""Checks of what a model file says, before anything relies on it: it may be damaged or hostile."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import onnx
import onnx_ir as ir
from onnx_ir.serde import SerdeError

from torchferry.errors import UsageError
from torchferry.graph.reference import is_linked

__all__ = ["check_attributes", "check_external", "check_inline", "check_text", "deserialize"]


def check_text(message: Any, path: str) -> None:
    """Refuse a model with a name that is not text: protobuf gives bytes in its place.

    Args:
        message: a model, or a part of one.
        path: what to call it.

    Raises:
        UsageError: there is one.
    """
    for field, value in _fields(message):
        if field.type == field.TYPE_MESSAGE:
            for item in value if isinstance(value, Sequence) else (value,):
                check_text(item, path)
        elif field.type == field.TYPE_STRING:
            for item in (value,) if isinstance(value, str | bytes) else value:
                if not isinstance(item, str):
                    raise UsageError(
                        f"{path} is damaged: its {message.DESCRIPTOR.name} has a {field.name} "
                        f"that is not text, {item[:40]!r}; copy or export the file again"
                    )


def _fields(message: Any) -> Iterable[tuple[Any, Any]]:
    """The fields that are set and their values; of a tensor only its texts: numbers are large."""
    if not isinstance(message, onnx.TensorProto):
        fields: list[tuple[Any, Any]] = message.ListFields()
        return fields
    known = message.DESCRIPTOR.fields_by_name
    names = ("name", "doc_string", "external_data", "metadata_props")
    return [(known[name], getattr(message, name)) for name in names]


def deserialize(proto: onnx.ModelProto, path: object) -> ir.Model:
    """Read a message as a model.

    Args:
        proto: the message; its tensors are not read.
        path: what to call it.

    Raises:
        UsageError: the message is damaged, or not a model.
    """
    try:
        return ir.from_proto(proto)
    except (AttributeError, LookupError, SerdeError, TypeError, ValueError) as error:
        raise UsageError(
            f"{path} is damaged: {_first_line(error)}; copy or export the file again"
        ) from error


def _first_line(error: Exception) -> str:
    """Return the innermost error as one line: onnx_ir wraps it in one for each level."""
    while isinstance(error, SerdeError) and isinstance(error.__cause__, Exception):
        error = error.__cause__
    return f"{type(error).__name__}: {next(iter(str(error).splitlines()), '')[:200]}"


def check_attributes(path: Path, model: ir.Model) -> None:
    """Refuse attributes of another type than the operator's: what reads them relies on it.

    Raises:
        UsageError: there is one, or one has no type.
    """
    bodies: list[ir.Graph | ir.Function] = [model.graph, *model.functions.values()]
    for body in bodies:
        versions = getattr(body, "opset_imports", None) or model.opset_imports
        for node in body.all_nodes():
            if not node.attributes:
                continue
            wanted = _attribute_types(node.domain, node.op_type, versions.get(node.domain, 1))
            for name, attribute in node.attributes.items():
                kind = int(attribute.type)
                if kind != wanted.get(name, kind) or attribute.type is ir.AttributeType.UNDEFINED:
                    raise UsageError(
                        f"{path} is damaged: attribute {name} of node {node.name} is "
                        f"{attribute.type.name}, which {node.op_type} does not take; copy or "
                        "export the file again"
                    )


@cache
def _attribute_types(domain: str, op_type: str, version: int) -> dict[str, int]:
    """Types of an operator's attributes by name; none of an operator that ONNX does not know."""
    if domain not in ("", "ai.onnx") or not onnx.defs.has(op_type, ""):
        return {}
    try:
        schema: Any = onnx.defs.get_schema(op_type, version, "")
    except onnx.defs.SchemaError:  # of a version that had none
        return {}
    return {name: int(kind.type.value) for name, kind in schema.attributes.items()}


def check_inline(path: Path, name: str | None, tensor: ir.TensorProtocol) -> None:
    """Refuse a tensor whose numbers in the model are more or fewer than its shape says.

    Raises:
        UsageError: it is one, or it has no type; nothing is allocated for what is not there.
    """
    _check_dtype(path, name, tensor)
    if not isinstance(tensor, ir.serde.TensorProtoTensor):
        return
    least, most = min(tensor.shape.numpy(), default=0), 8 * tensor.raw.ByteSize()
    said = str(list(tensor.shape.numpy()))
    damaged = least < 0 or (tensor.dtype != ir.DataType.STRING and tensor.nbytes > most)
    if not damaged:
        try:
            tensor.numpy()
        except (AssertionError, LookupError, TypeError, ValueError) as error:
            damaged, said = True, f"({str(error)[:200]})"
    if damaged:
        raise UsageError(
            f"{path} is damaged: the numbers of {name} do not fit its type and shape {said}; "
            "copy or export the file again"
        )


def check_external(
    path: Path, name: str | None, tensor: ir.ExternalTensor, files: dict[Path, int]
) -> None:
    """Refuse a tensor that is not whole in a file in the model's folder.

    Args:
        path: of the model.
        name: of the tensor.
        tensor: whose file is looked at, and not read.
        files: sizes of the files that were looked at already.

    Raises:
        UsageError: the file is not there, elsewhere, or too short, or the tensor has no type.
    """
    _check_dtype(path, name, tensor)
    data = Path(tensor.path)
    if data not in files:
        files[data] = _size_of(path, data)
    shape = tensor.shape.numpy()
    begin, length = tensor.offset or 0, tensor.length
    end = begin + (tensor.nbytes if length is None else length)
    if min(shape, default=0) < 0 or begin < 0 or (length is not None and length < 0):
        raise UsageError(
            f"{path} is damaged: {name} has the shape {list(shape)} at byte {begin}; copy or "
            "export the file again"
        )
    if end > files[data] or (length or tensor.nbytes) < tensor.nbytes:
        raise UsageError(
            f"{data} is cut short or of another model: it has {files[data]} bytes, and {name} "
            f"ends at byte {begin + tensor.nbytes}; copy it again, with its model"
        )


def _check_dtype(path: Path, name: str | None, tensor: ir.TensorProtocol) -> None:
    """Refuse a tensor of no type: how many bytes it has cannot be told."""
    if tensor.dtype is ir.DataType.UNDEFINED:
        raise UsageError(f"{path} is damaged: {name} has no type; copy or export the file again")


def _size_of(path: Path, data: Path) -> int:
    """The size of a file of weights, if onnxruntime and onnx_ir will read it.

    They read nothing outside the model's folder, by whatever way, as it may be a secret of another
    user, and no second name of a file (a hard link).

    Raises:
        UsageError: they will not.
    """
    advice = f"put a copy of the file beside {path.name}"
    if not data.is_file():
        raise UsageError(
            f"{path} keeps its weights in {data.name}, which is not beside it: copy both files"
        )
    folder = path.parent
    plain = Path(os.path.normpath(data.absolute()))
    if not (
        plain.is_relative_to(os.path.normpath(folder.absolute()))
        and data.resolve().is_relative_to(folder.resolve())
    ):
        raise UsageError(
            f"{path} keeps its weights in {data}, which is outside its folder or a link to there, "
            f"where nothing is read; {advice}"
        )
    if not os.access(data, os.R_OK):
        raise UsageError(f"cannot read {data}: permission denied; {advice}")
    if data.stat().st_nlink > 1 and not is_linked(data):
        raise UsageError(
            f"{data} has a second name (a hard link), and may be another user's: {advice}"
        )
    return data.stat().st_size
