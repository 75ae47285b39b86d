"""Weights that stay in the files of a checkpoint: an ONNX model points into them.

ONNX keeps external data by file, offset and length (``TensorProto.external_data``), and a
``.safetensors`` file holds plain little-endian bytes, so its tensors can be external data as they
lie there. onnxruntime reads only files in the model's folder and refuses symbolic links; a hard
link is the file itself under a second name, and costs nothing.
"""

from __future__ import annotations

import errno
import os
import secrets
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir

from torchferry.errors import UsageError

__all__ = [
    "References",
    "Region",
    "check_linkable",
    "is_linked",
    "is_unbound",
    "linked",
    "linked_tensor",
    "refuse_unbound",
    "withheld",
]

_SHOWN = 3  # names in a message
_NO_LINK = {
    errno.EXDEV: "it is on another file system",
    errno.EMLINK: "it has as many names as its file system allows",
    errno.EPERM: "the file system has no hard links, or forbids them for a file of somebody else",
    errno.EOPNOTSUPP: "the file system has no hard links",
}


@dataclass(frozen=True)
class Region:
    """A file of weights that a model may refer to, and where it lies in memory.

    Attributes:
        path: the file.
        address: of its first byte, where the whole file is mapped; 0 when it is not.
        size: bytes that are mapped.
    """

    path: Path
    address: int = 0
    size: int = 0


class References:
    """Where tensors lie in the files that a model may refer to.

    Attributes:
        used: the files of the places that were asked for and found.
    """

    def __init__(self, regions: Sequence[Region]) -> None:
        self.used: dict[Path, None] = {}
        self._mapped = [region for region in regions if region.size]
        self._files = {region.path.resolve(): region.path for region in regions}

    def place(self, tensor: ir.TensorProtocol) -> tuple[Path, int] | None:
        """The file that holds exactly the bytes of a tensor, and their offset; else ``None``."""
        found = self._of_file(tensor) or self._of_memory(tensor)
        if found is not None:
            self.used.setdefault(found[0])
        return found

    def _of_file(self, tensor: ir.TensorProtocol) -> tuple[Path, int] | None:
        if not self._files or not isinstance(tensor, ir.ExternalTensor):
            return None
        path = self._files.get(Path(tensor.path).resolve())
        return None if path is None else (path, tensor.offset or 0)

    def _of_memory(self, tensor: ir.TensorProtocol) -> tuple[Path, int] | None:
        address = _address(tensor) if self._mapped else None
        if address is None:
            return None
        for region in self._mapped:
            offset = address - region.address
            if 0 <= offset <= region.size - tensor.nbytes:
                return region.path, offset
        return None


def _address(tensor: ir.TensorProtocol) -> int | None:
    """Where the bytes of a tensor begin in memory, when they lie there as a file has them."""
    raw: Any = None if isinstance(tensor, ir.LazyTensor) else getattr(tensor, "raw", None)
    if isinstance(raw, np.ndarray):
        plain = raw.flags.c_contiguous and raw.nbytes == tensor.nbytes
        return int(raw.ctypes.data) if plain else None
    if hasattr(raw, "data_ptr") and hasattr(raw, "is_contiguous") and raw.device.type == "cpu":
        # a torch tensor, asked without importing torch
        return int(raw.data_ptr()) if raw.is_contiguous() else None
    return None


@contextmanager
def withheld(model: ir.Model, regions: Sequence[Region], *, least: int = 1024) -> Iterator[None]:
    """Keep the data of weights that lie in files from whatever is done to a model in the block.

    An optimizer that folds constants would otherwise compute with them, which reads them all and
    makes copies of them.

    Args:
        model: its initializers have no values in the block, and theirs again after it.
        regions: the files.
        least: bytes; smaller weights may be computed with.
    """
    references = References(regions)
    kept: list[tuple[ir.Value, ir.TensorProtocol]] = []
    for graph in model.graphs():
        for value in graph.initializers.values():
            tensor = value.const_value
            if tensor is not None and tensor.nbytes > least and references.place(tensor):
                kept.append((value, tensor))
                value.const_value = None
    try:
        yield
    finally:
        for value, tensor in kept:
            value.const_value = tensor


# Tensors without data --------------------------------------------------------------------------


def is_unbound(tensor: ir.TensorProtocol | None) -> bool:
    """Whether a tensor has a name, a type and a shape, and no data: it is on torch's ``meta``."""
    raw = None if isinstance(tensor, ir.LazyTensor) else getattr(tensor, "raw", None)
    return getattr(getattr(raw, "device", None), "type", None) == "meta"


def refuse_unbound(initializers: Iterable[tuple[ir.Value, ir.TensorProtocol]]) -> None:
    """Refuse to write a model with weights that have no data.

    Raises:
        UsageError: there is one; the first ones are named.
    """
    names = [str(value.name) for value, tensor in initializers if is_unbound(tensor)]
    if names:
        more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
        raise UsageError(
            f"the model was converted without data, and has none for {', '.join(names[:_SHOWN])}"
            f"{more}: bind its weights with torchferry.graph.bind_weights(model, folder); what no "
            "checkpoint holds, as rotary frequencies, is given there by values="
        )


# Links -----------------------------------------------------------------------------------------


def check_linkable(path: Path, folder: Path) -> None:
    """Try, before any work is done, whether a file can get a second name in a folder.

    Raises:
        UsageError: it cannot; says why and what to do.
    """
    trial = folder / f".torchferry-{secrets.token_hex(8)}.part"
    _link(path, trial)
    trial.unlink()


@contextmanager
def linked(paths: Iterable[Path], folder: Path) -> Iterator[None]:
    """Give files a second name in a folder; it goes again when the block raises.

    A file that lies there already stays as it is.

    Raises:
        UsageError: another file of that name is there, or no link can be made.
    """
    made: list[Path] = []
    try:
        for path in paths:
            target = folder / path.name
            if not _is_there(target, path):
                _link(path, target)
                made.append(target)
        yield
    except BaseException:  # Ctrl-C, too: no link is left behind
        for target in made:
            target.unlink(missing_ok=True)
        raise


def _is_there(target: Path, path: Path) -> bool:
    if target.exists() and not target.samefile(path):
        raise UsageError(f"{target} is another file than {path}: give another folder")
    return target.exists()


def _link(path: Path, target: Path) -> None:
    try:
        os.link(path.resolve(), target)  # a link to what a symbolic link points to
    except OSError as error:
        reason = _NO_LINK.get(error.errno or 0, error.strerror or str(error))
        raise UsageError(
            f"{path} cannot have a second name (hard link) in {target.parent}: {reason}. "
            "Write to a folder beside the checkpoint, or use --weights copy"
        ) from error


def is_linked(path: Path) -> bool:
    """Whether a file is a ``.safetensors`` file with several names, as `linked` makes them."""
    plain = path.suffix == ".safetensors" and not path.is_symlink() and path.is_file()
    return plain and path.stat().st_nlink > 1


def linked_tensor(tensor: ir.ExternalTensor) -> ir.ExternalTensor:
    """The same tensor, to be read although its ``.safetensors`` file has several names.

    onnx_ir reads no file that has a second name, since it may be the name of a secret; a plain
    file of weights beside the model is what `linked` makes. Any other tensor comes back as it is.
    """
    path = Path(tensor.path)
    if Path(tensor.location).name != str(tensor.location) or not is_linked(path):
        return tensor
    return ir.ExternalTensor(
        path.absolute(),
        tensor.offset,
        tensor.length,
        tensor.dtype,
        shape=tensor.shape,
        name=tensor.name,
        doc_string=tensor.doc_string,
    )
