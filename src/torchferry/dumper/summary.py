"""What a file holds, as plain data: a dump, or any ``.safetensors`` file."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from torchferry.dumper.document import DOCUMENT
from torchferry.dumper.record import Key
from torchferry.dumper.safetensors_file import Stored, stored_tensors
from torchferry.dumper.statistics import Statistics, statistics
from torchferry.dumper.store import read_entries
from torchferry.values import flatten, path_text, string_type

__all__ = ["DumpSummary", "EntrySummary", "TensorSummary", "TensorsSummary", "summarize"]


@dataclass(frozen=True)
class TensorSummary:
    """One tensor or array.

    Attributes:
        name: where it stands in its entry: ``0.past_key_values.key_cache.1``.
        type: as `string_type` has it, with its shape: ``T1s2x3``.
        nbytes: of its elements.
        statistics: ``None`` where they were not asked for, or it holds no numbers.
    """

    name: str
    type: str
    nbytes: int
    statistics: Statistics | None = None


@dataclass(frozen=True)
class EntrySummary:
    """One value of a dump: its key, its `string_type` with shapes, its tensors."""

    key: Key
    type: str
    tensors: tuple[TensorSummary, ...]


@dataclass(frozen=True)
class DumpSummary:
    """A dump of torchferry; ``nbytes`` is that of its files."""

    path: Path
    nbytes: int
    entries: tuple[EntrySummary, ...]


@dataclass(frozen=True)
class TensorsSummary:
    """A ``.safetensors`` file of any origin; types as the format writes them: ``F32 2x3``."""

    path: Path
    nbytes: int
    tensors: tuple[TensorSummary, ...]
    metadata: tuple[tuple[str, str], ...]


def summarize(path: Path | str) -> DumpSummary | TensorsSummary:
    """Say what a dump or a ``.safetensors`` file holds; of a dump one entry at a time is read.

    Raises:
        UsageError: it is missing, damaged, or neither. The outline of an ONNX model that is no
            dump is in `torchferry.graph.outline`, which does not load torch.
    """
    path = Path(path)
    if path.is_file() and path.suffix == ".safetensors":
        tensors, metadata = stored_tensors(path)
        if DOCUMENT not in metadata:
            return _of_tensors(path, tensors, metadata)
    entries = tuple(_of_entry(key, value) for key, value in read_entries(path, stand_ins=True))
    beside = path.with_name(f"{path.name}_data")
    files = path.iterdir() if path.is_dir() else (path, beside)
    return DumpSummary(path, sum(file.stat().st_size for file in files if file.is_file()), entries)


def _of_entry(key: Key, value: Any) -> EntrySummary:
    leaves, _ = flatten(value)
    tensors = [
        TensorSummary(
            path_text(path), string_type(leaf, with_shape=True), leaf.nbytes, statistics(leaf)
        )
        for path, leaf in leaves
        if isinstance(leaf, torch.Tensor | np.ndarray | np.generic)
    ]
    return EntrySummary(key, string_type(value, with_shape=True), tuple(tensors))


def _of_tensors(
    path: Path, tensors: dict[str, Stored], metadata: dict[str, str]
) -> TensorsSummary:
    found = [
        TensorSummary(
            name, f"{tensor.dtype} {_shape_text(tensor.shape)}", tensor.end - tensor.begin
        )
        for name, tensor in tensors.items()
    ]
    return TensorsSummary(path, path.stat().st_size, tuple(found), tuple(metadata.items()))


def _shape_text(shape: Iterable[object]) -> str:
    return "x".join(map(str, shape)) or "scalar"
