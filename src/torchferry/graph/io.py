"""ONNX files with their weights beside them.

Small tensors stay in ``model.onnx``; the others stand in ``model.onnx_data``, which is the name
and the layout (ONNX external data) that onnxruntime, optimum and genai expect. Weights go from
where they lie to the file one by one, so that writing needs no memory for a second copy.
"""

from __future__ import annotations

import secrets
from collections.abc import Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import numpy as np
import onnx
import onnx_ir as ir
from google.protobuf.message import (  # type: ignore[import-untyped]  # it ships no types
    EncodeError,
)

from torchferry.errors import UsageError
from torchferry.graph.integrity import check_attributes, check_external, check_inline, deserialize
from torchferry.graph.outline import read_proto
from torchferry.graph.reference import (
    References,
    Region,
    linked,
    linked_tensor,
    refuse_unbound,
)
from torchferry.graph.transposed import is_transposed, write_transposed

__all__ = ["load", "save", "store_metadata"]

_INLINE = 1024  # bytes; onnxruntime's shape inference reads small integer constants in the model
_PAGE = 4096  # bytes; large tensors start on a page, so that readers can map them
_LINE = 64  # bytes; the others on a cache line
_LARGE = 2**20  # bytes

Values = list[tuple[ir.Value, ir.TensorProtocol]]


def save(model: ir.Model, path: Path, *, regions: Sequence[Region] = ()) -> None:
    """Write a model, with the initializers over 1 KiB in ``NAME.onnx_data`` beside it.

    Initializers that share their memory are written once. Each file is written beside its name
    and renamed when both are whole, the weights first. The model in memory stays as it is, also
    when its weights lie in the file that is replaced. Tensors in attributes stay in the model.

    Args:
        model: the model; its weights may be torch tensors, arrays, or lie in other files.
        path: ``.../model.onnx``, in a folder that exists.
        regions: files whose bytes are not copied: a tensor that lies in one of them is referred to
            there, and the file gets a second name (a hard link) beside the model.

    Raises:
        UsageError: the files cannot be written or linked, a weight has no data, or what is left
            in the model exceeds 2 GiB.
    """
    data = path.with_name(f"{path.name}_data")
    part = f".torchferry-{secrets.token_hex(8)}.part"
    model_part, data_part = path.with_name(f"{part}.onnx"), path.with_name(part)
    initializers = list(_initializers(model))
    refuse_unbound(initializers)
    references = References(regions)
    try:
        stored = _write_data(initializers, data, data_part, references)
        with _replaced(initializers, stored):
            content = ir.to_proto(model).SerializeToString()
        with linked(references.used, path.parent):
            model_part.write_bytes(content)
            if data_part.exists():
                data_part.replace(data)
            model_part.replace(path)
    except OSError as error:
        raise UsageError(f"cannot write {path}: {error.strerror or error}") from error
    except (EncodeError, ValueError) as error:
        # protobuf has no other word for a message over 2 GiB
        raise UsageError(f"{path} cannot be written as one ONNX model: {error}") from error
    finally:
        model_part.unlink(missing_ok=True)
        data_part.unlink(missing_ok=True)


def store_metadata(path: Path, metadata: Mapping[str, str]) -> None:
    """Exchange the properties of a saved model; files beside it stay untouched.

    Args:
        path: the ``.onnx`` file, which is replaced as a whole.
        metadata: all properties, by name.

    Raises:
        UsageError: the file cannot be read or written.
    """
    model = read_proto(path)
    del model.metadata_props[:]
    onnx.helper.set_model_props(model, dict(metadata))
    part = path.with_name(f".torchferry-{secrets.token_hex(8)}.part.onnx")
    try:
        part.write_bytes(model.SerializeToString())
        part.replace(path)
    except OSError as error:
        raise UsageError(f"cannot write {path}: {error.strerror or error}") from error
    finally:
        part.unlink(missing_ok=True)


def load(path: Path) -> ir.Model:
    """Read a model; weights over 1 KiB stay in their files, mapped when they are asked for.

    Raises:
        UsageError: there is no such file, it is not an ONNX model, or a file of weights is
            missing, too short, or outside the model's folder; or a node reads what nothing makes.
    """
    model = deserialize(read_proto(path), path)
    ir.external_data.set_base_dir(model.graph, path.parent)
    files: dict[Path, int] = {}
    for value, tensor in _initializers(model):
        if isinstance(tensor, ir.ExternalTensor):
            check_external(path, value.name, tensor, files)
            small = tensor.nbytes <= _INLINE
            value.const_value = _inline(value, tensor) if small else linked_tensor(tensor)
        else:
            check_inline(path, value.name, tensor)
    check_attributes(path, model)
    _read_attributes(path, model, files)
    _check_made(path, model)
    return model


def _read_attributes(path: Path, model: ir.Model, files: dict[Path, int]) -> None:
    """Read the tensors in attributes: no more than a model in one file may hold."""
    bodies: list[ir.Graph | ir.Function] = [model.graph, *model.functions.values()]
    for node in (node for body in bodies for node in body.all_nodes()):
        for attribute in [*node.attributes.values()]:
            tensor, name = attribute.value, f"attribute {attribute.name} of {node.name}"
            if isinstance(tensor, ir.ExternalTensor):
                tensor.base_dir = path.parent  # that of a function has none yet
                check_external(path, name, tensor, files)
                loaded = ir.Tensor(tensor.numpy().copy(), dtype=tensor.dtype, name=tensor.name)
                node.attributes[attribute.name] = ir.AttrTensor(attribute.name, loaded)
            elif isinstance(tensor, ir.serde.TensorProtoTensor):
                check_inline(path, name, tensor)


def _check_made(path: Path, model: ir.Model) -> None:
    """Refuse a value that nothing makes; onnx_ir reads no sparse initializers."""
    for graph in model.graphs():
        for node in graph:
            for value in node.inputs:
                if value is None or value.producer() or value.is_graph_input():
                    continue
                if not value.is_initializer():
                    raise UsageError(
                        f"{path}: node {node.name} reads {value.name}, which nothing makes. If it "
                        "is a sparse initializer, write it as a dense one"
                    )


def _initializers(model: ir.Model) -> Iterator[tuple[ir.Value, ir.TensorProtocol]]:
    """The initializers that have values, those of subgraphs included."""
    for graph in model.graphs():
        for value in graph.initializers.values():
            if value.const_value is not None:
                yield value, value.const_value


def _write_data(
    initializers: Values, data: Path, part: Path, references: References
) -> list[ir.TensorProtocol]:
    """Write the large initializers to ``part``; return what stands for each of them in ``data``.

    Those that lie in a file that may be referred to are not written. No file is made when there
    is nothing to write.
    """
    stored: list[ir.TensorProtocol] = []
    places: dict[Hashable, tuple[int, int]] = {}
    stream: IO[bytes] | None = None
    try:
        for value, tensor in initializers:
            key = _memory(tensor)
            if isinstance(tensor, ir.ExternalTensor) and Path(tensor.path).resolve() == (
                data.resolve()
            ):
                tensor.numpy()  # maps the file as it is now: its name will stand for another
            if tensor.dtype == ir.DataType.STRING or tensor.nbytes <= _INLINE:
                stored.append(_inline(value, tensor))
                continue
            if (place := references.place(tensor)) is not None:
                stored.append(_external(value, tensor, *place, tensor.nbytes))
                continue
            if key not in places:
                stream = part.open("xb") if stream is None else stream
                places[key] = _append(tensor, stream)
            stored.append(_external(value, tensor, data, *places[key]))
    finally:
        if stream is not None:
            stream.close()
    return stored


def _append(tensor: Any, stream: IO[bytes]) -> tuple[int, int]:
    """Write an ``ir`` tensor at the next aligned place; return its offset and length in bytes."""
    if isinstance(tensor, ir.LazyTensor):
        tensor = tensor.raw()
    unit = _PAGE if tensor.nbytes >= _LARGE else _LINE
    offset = -(-stream.tell() // unit) * unit
    stream.seek(offset)
    strided = _strided(tensor)
    if strided is not None and is_transposed(strided):
        write_transposed(strided, stream)
    elif isinstance(strided, np.ndarray):
        # numpy writes a strided array element by element
        stream.write(np.ascontiguousarray(strided).reshape(-1).view(np.uint8).data)
    elif isinstance(tensor, ir.ExternalTensor) and tensor.raw is not None:
        # not tofile: its file may have been replaced since it was mapped
        start = tensor.offset or 0
        with memoryview(tensor.raw) as mapped:
            stream.write(mapped[start : start + tensor.nbytes])
    else:
        tensor.tofile(stream)
    length = stream.tell() - offset
    if length != tensor.nbytes:
        raise ValueError(f"{tensor.name} has {tensor.nbytes} bytes and wrote {length}")
    return offset, length


def _strided(tensor: Any) -> np.ndarray[Any, Any] | None:
    """The array of a tensor in memory whose bytes are not in the order of a file."""
    raw: Any = getattr(tensor, "raw", None)
    if isinstance(raw, np.ndarray):
        array = raw
    elif hasattr(raw, "is_contiguous") and raw.device.type == "cpu":
        array = tensor.numpy()
    else:
        return None
    plain = array.flags.c_contiguous or array.nbytes != tensor.nbytes
    return None if plain else array


def _memory(tensor: ir.TensorProtocol) -> Hashable:
    """What two tensors have in common when their bytes are the same bytes in memory or on disk."""
    if isinstance(tensor, ir.ExternalTensor) and tensor.raw is None:
        return ("file", str(tensor.path), tensor.offset, tensor.dtype, tensor.nbytes)
    raw: Any = None if isinstance(tensor, ir.LazyTensor) else getattr(tensor, "raw", None)
    if isinstance(tensor, ir.ExternalTensor):
        raw = tensor.numpy()
    if isinstance(raw, np.ndarray):
        packed = raw.flags.c_contiguous
        layout = None if packed else (raw.shape, raw.strides)
        return (type(tensor), raw.ctypes.data, tensor.dtype, tensor.nbytes, layout)
    if hasattr(raw, "data_ptr") and hasattr(raw, "is_contiguous") and raw.device.type == "cpu":
        # a torch tensor, asked without importing torch
        layout = None if raw.is_contiguous() else (tuple(raw.shape), raw.stride())
        return (type(tensor), raw.data_ptr(), tensor.dtype, tensor.nbytes, layout)
    return ("object", id(tensor))


def _inline(value: ir.Value, tensor: ir.TensorProtocol) -> ir.TensorProtocol:
    if isinstance(tensor, ir.ExternalTensor):
        return ir.Tensor(tensor.numpy().copy(), dtype=tensor.dtype, name=value.name)
    return tensor


def _external(
    value: ir.Value, tensor: ir.TensorProtocol, data: Path, offset: int, length: int
) -> ir.ExternalTensor:
    return ir.ExternalTensor(
        data.name,
        offset,
        length,
        tensor.dtype,
        shape=ir.Shape(tensor.shape.numpy()),
        name=value.name or "",
        doc_string=tensor.doc_string,
        base_dir=data.parent,
    )


@contextmanager
def _replaced(initializers: Values, stored: list[ir.TensorProtocol]) -> Iterator[None]:
    """Let the model refer to the written tensors for a while, as serialising it needs."""
    try:
        for (value, _), tensor in zip(initializers, stored, strict=True):
            value.const_value = tensor
        yield
    finally:
        for value, tensor in initializers:
            value.const_value = tensor
