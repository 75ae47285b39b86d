"""Dumps as ONNX models: every tensor a constant with a name, for any runtime and any viewer.

A tensor is an initializer that Identity gives out under the name of its place. Tensors that
share memory are gathered from one initializer, by indices that are sums of one range an axis, so
that the memory stands in the file once.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import torch
from google.protobuf.message import (  # type: ignore[import-untyped]  # it ships no types
    EncodeError,
)
from onnx import helper

from torchferry.dumper.document import Source, properties
from torchferry.dumper.element import item_size, presented
from torchferry.dumper.memory import BITS, Buffer
from torchferry.dumper.part import PartFile, checksum, read_bytes, remove
from torchferry.dumper.record import Entry, unique_name
from torchferry.dumper.region import Region
from torchferry.errors import UsageError
from torchferry.graph.integrity import check_text

__all__ = ["OnnxSink", "open_onnx"]

# onnx.TensorProto.DataType of what onnxruntime runs Identity on; the first are those of Gather.
_GATHERED = {
    "float32": 1, "uint8": 2, "int8": 3, "uint16": 4, "int16": 5, "int32": 6, "int64": 7,
    "bool": 9, "float16": 10, "float64": 11, "uint32": 12, "uint64": 13, "bfloat16": 16,
}  # fmt: skip
_KINDS = _GATHERED | {
    "float8_e4m3fn": 17, "float8_e4m3fnuz": 18, "float8_e5m2": 19, "float8_e5m2fnuz": 20,
}  # fmt: skip
_INT64 = 7
_IR_VERSION, _OPSET = 10, 20
_INLINE = 1024  # bytes; larger buffers stand in the file beside the model, as in graph/io
_UNIT = 64  # bytes; where they start
_MOST = 2**31 - 2**20  # bytes of one protobuf message, some of it for the rest


class OnnxSink:
    """Builds a model of the entries; large tensors go to ``NAME.onnx_data`` as they come.

    Attributes:
        taken: the names of the model so far.
    """

    def __init__(self, path: Path | None) -> None:
        """``path`` is ``NAME.onnx``; without one everything is kept in the model."""
        self.taken: set[str] = set()
        self._path = path
        self._model_part = PartFile(path) if path else None
        self._data: Path | None = path.with_name(f"{path.name}_data") if path else None
        self._data_part: PartFile | None = None
        self._model = onnx.ModelProto(
            ir_version=_IR_VERSION,
            producer_name="torchferry",
            opset_import=[helper.make_opsetid("", _OPSET)],
        )
        self._graph = self._model.graph
        self._graph.name = "dump"
        self._inline = 0
        self._records: list[dict[str, Any]] = []

    def write(self, entry: Entry) -> None:
        """Add the buffers of an entry, their checksums to its record, and give out its tensors.

        Raises:
            UsageError: the file cannot be written, which is then as before, or the model is full.
        """
        start = self._data_part.end if self._data_part else 0
        count = len(self._graph.initializer)
        shared = {region.buffer for _, region in entry.views if region.strides is not None}
        try:
            for number, (buffer, note) in enumerate(
                zip(entry.buffers, entry.record["buffers"], strict=True)
            ):
                note["name"] = unique_name(f"{note['name']}.data", self.taken)
                kinds = _GATHERED if number in shared else _KINDS
                self._add(note, buffer, *_shown(buffer, kinds, flat=number in shared))
        except BaseException:
            if self._data_part:
                self._data_part.cut(start)
            del self._graph.initializer[count:]
            raise
        for name, region in entry.views:
            initializer = self._graph.initializer[count + region.buffer]
            self._give_out(name, region, entry.buffers[region.buffer], initializer)
        self._records.append(entry.record)

    def finish(self, *, whole: bool = False) -> onnx.ModelProto:
        """The model; it and its data get their names, if there is a path.

        Args:
            whole: whether the dump is one value without a key.

        Raises:
            UsageError: the files cannot be written, or the model is larger than one may be.
        """
        helper.set_model_props(self._model, properties(self._records, whole=whole))
        if self._model_part is not None:
            try:
                self._model_part.append(self._model.SerializeToString())
            except (EncodeError, ValueError) as error:
                raise UsageError(f"{self._path} is too large for one ONNX model") from error
            self._model_part.close()
            if self._data_part is not None:
                self._data_part.close()
                self._data_part.rename()
            replaces = self._path is not None and self._path.exists()
            self._model_part.rename()
            if self._data_part is None and self._data is not None and replaces:
                remove(self._data)  # of the model that was replaced; this one needs none
        return self._model

    def discard(self) -> None:
        """Remove what was written."""
        for part in (self._model_part, self._data_part):
            if part is not None:
                part.discard()

    def _add(self, note: dict[str, Any], buffer: Buffer, kind: int, dims: list[int]) -> None:
        tensor = onnx.TensorProto(name=note["name"], data_type=kind, dims=dims)
        if self._data is None or len(buffer.data) <= _INLINE:
            self._inline += len(buffer.data)
            if self._inline > _MOST:
                raise UsageError(
                    "these tensors are more than the 2 GiB of one ONNX model; "
                    "give a path, or dump to a folder"
                )
            tensor.raw_data = buffer.data.tobytes()
            note["checksum"] = checksum(tensor.raw_data)
        else:
            self._data_part = self._data_part or PartFile(self._data)
            offset, note["checksum"] = self._data_part.append(buffer.data, _UNIT)
            tensor.data_location = onnx.TensorProto.EXTERNAL
            place = {"location": self._data.name, "offset": offset, "length": len(buffer.data)}
            for key, value in place.items():
                tensor.external_data.add(key=key, value=str(value))
        self._graph.initializer.append(tensor)

    def _give_out(
        self, name: str, region: Region, buffer: Buffer, initializer: onnx.TensorProto
    ) -> None:
        shape: list[int]
        if region.strides is None:
            shape = list(initializer.dims)
            node = helper.make_node("Identity", [initializer.name], [name])
        else:
            size = item_size(region.dtype)
            bits = buffer.dtype != region.dtype
            _, axes = presented(region.dtype, () if bits else _GATHERED)
            unit = size // (axes[0] if axes else 1)
            shape = [*region.shape, *axes]
            steps = [stride // unit for stride in region.strides] + [1] * len(axes)
            index = self._index(name, shape, steps, region.offset // unit)
            node = helper.make_node("Gather", [initializer.name, index], [name])
        self._graph.node.append(node)
        self._graph.output.append(
            helper.make_tensor_value_info(name, initializer.data_type, shape)
        )

    def _index(self, name: str, shape: list[int], steps: list[int], offset: int) -> str:
        """The places of the elements in the flat buffer: a sum of one range an axis."""
        total = self._constant(name, offset)
        for axis, (count, step) in enumerate(zip(shape, steps, strict=True)):
            if step == 0:
                continue  # may be longer than memory: Expand makes it, when the model runs
            limits = [self._constant(name, number) for number in (0, count * step, step)]
            along = self._node("Range", name, *limits)
            sizes = [-1] + [1] * (len(shape) - axis - 1)
            along = self._node("Reshape", name, along, self._constant(name, sizes))
            total = self._node("Add", name, total, along)
        return self._node("Expand", name, total, self._constant(name, shape)) if shape else total

    def _node(self, op_type: str, name: str, *inputs: str) -> str:
        made = unique_name(f"{name}.index", self.taken)
        self._graph.node.append(helper.make_node(op_type, inputs, [made]))
        return made

    def _constant(self, name: str, value: int | list[int]) -> str:
        unique = unique_name(f"{name}.axis", self.taken)
        array = np.array(value, np.int64)
        self._graph.initializer.add(
            name=unique, data_type=_INT64, dims=array.shape, raw_data=array.tobytes()
        )
        return unique


def _shown(buffer: Buffer, kinds: dict[str, int], *, flat: bool) -> tuple[int, list[int]]:
    """Element type and shape of a buffer in the model."""
    kind, axes = presented(buffer.dtype, kinds)
    if flat:
        unit = 1 if buffer.dtype == BITS else item_size(buffer.dtype) // (axes[0] if axes else 1)
        return kinds[kind], [len(buffer.data) // unit]
    return kinds[kind], [*buffer.shape, *axes]


def open_onnx(model: onnx.ModelProto, path: Path | None) -> Source:
    """An ONNX model to read a dump from.

    Args:
        model: as `torchferry.graph.outline.read_proto` gives it.
        path: where it came from: large tensors stand in a file beside it.

    Raises:
        UsageError: it has a name that is not text.
    """
    name = str(path) if path else "this model"
    if path is None:
        check_text(model, name)
    metadata = {entry.key: entry.value for entry in model.metadata_props}
    tensors = {tensor.name: tensor for tensor in model.graph.initializer}
    return Source(name, metadata, partial(_fetch, path, name, tensors))


def _fetch(
    path: Path | None,
    where: str,
    tensors: Mapping[str, onnx.TensorProto],
    name: str,
    count: int,
) -> torch.Tensor:
    tensor = tensors.get(name)
    if tensor is None:
        raise UsageError(f"{where} is damaged: it holds no {name!r}")
    if tensor.data_location != onnx.TensorProto.EXTERNAL:
        if len(tensor.raw_data) != count:
            raise UsageError(f"{where} is damaged: {name!r} has {len(tensor.raw_data)} bytes")
        return torch.from_numpy(np.frombuffer(tensor.raw_data, np.uint8).copy())
    place = {entry.key: entry.value for entry in tensor.external_data}
    location, offset, length = (place.get(key, "") for key in ("location", "offset", "length"))
    if path is None:
        raise UsageError(f"the tensors of this model stand in {location}: give the path of it")
    beside = Path(location).name == location and location not in ("", "..")
    numbers = offset.isascii() and offset.isdigit() and length == str(count)
    if not beside or not numbers or len(offset) > 18:
        raise UsageError(
            f"{where} is damaged: {name!r} is at {location!r}, {offset!r}, {length!r}"
        )
    return read_bytes(path.with_name(location), int(offset), count)
