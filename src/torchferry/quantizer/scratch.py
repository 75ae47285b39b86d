"""A file that quantized tensors are appended to, so that none of them stays in memory."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from types import TracebackType

import numpy as np
import onnx_ir as ir

from torchferry.quantizer.grid import Array

__all__ = ["Scratch"]


class Scratch:
    """A file of tensors, removed when the block ends; the model has to be saved before.

    Args:
        path: of the file, which must not exist.
    """

    def __init__(self, path: Path) -> None:
        self._path, self._stream = path, path.open("xb")

    def __enter__(self) -> Scratch:
        """The file itself."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        """Remove the file."""
        self._stream.close()
        self._path.unlink(missing_ok=True)

    def store(self, name: str, chunks: Iterable[Array]) -> ir.Value:
        """Append arrays, which are parts of one tensor along its first axis.

        Returns:
            An initializer that refers to the file.
        """
        offset, rows = self._stream.tell(), 0
        dtype, rest = np.dtype(np.uint8), tuple[int, ...]()
        for chunk in chunks:
            self._stream.write(np.ascontiguousarray(chunk).data)
            rows, dtype, rest = rows + len(chunk), chunk.dtype, chunk.shape[1:]
        self._stream.flush()
        tensor = ir.ExternalTensor(
            self._path.name,
            offset,
            self._stream.tell() - offset,
            ir.DataType.from_numpy(dtype),
            shape=ir.Shape((rows, *rest)),
            name=name,
            base_dir=self._path.parent,
        )
        return ir.Value(
            name=name,
            const_value=tensor,
            shape=ir.Shape((rows, *rest)),
            type=ir.TensorType(tensor.dtype),
        )
