"""Where the weights of a written model lie, as a section of its report."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import onnx_ir as ir

from torchferry.exporter.steps import bytes_text, counted
from torchferry.graph import io
from torchferry.report.model import Report, Section, Table

__all__ = ["with_weights"]

_SHOWN = 20  # copied tensors named one by one


@dataclass
class _File:
    """The tensors that a model has in one file, by name, in bytes."""

    sizes: dict[str, int] = field(default_factory=dict)

    @property
    def size(self) -> int:
        return sum(self.sizes.values())


def with_weights(report: Report, path: Path) -> Report:
    """Add which files hold the weights, and which weights had to be copied.

    Args:
        report: of an export.
        path: the ``.onnx`` file it wrote.

    Raises:
        UsageError: the file cannot be read.
    """
    files = _files(path)
    copied = files.pop(f"{path.name}_data", _File())
    rows = [(name, "referred to", len(f.sizes), bytes_text(f.size)) for name, f in files.items()]
    if copied.sizes:
        rows.append((f"{path.name}_data", "copied", len(copied.sizes), bytes_text(copied.size)))
    note = (
        "The files are the checkpoint's own: whoever writes into them changes the model too. "
        "onnxruntime and torchferry read them; onnx.load refuses a file that has a second name, "
        "until one of the names is removed."
    )
    blocks = [Table(("file", "how", "tensors", "size"), tuple(rows), note=note)]
    if copied.sizes:
        blocks.append(_copied_table(copied))
    section = Section("Weights", tuple(blocks))
    data: Mapping[str, Any] = {
        "referred": {name: f.size for name, f in files.items()},
        "copied": copied.sizes,
    }
    return replace(
        report,
        sections=(*report.sections[:2], section, *report.sections[2:]),
        data={**report.data, "weights": data},
    )


def _copied_table(copied: _File) -> Table:
    largest = sorted(copied.sizes.items(), key=lambda pair: -pair[1])
    more = len(largest) - _SHOWN
    return Table(
        ("copied", "size"),
        tuple((name, bytes_text(size)) for name, size in largest[:_SHOWN]),
        note=(f"… and {counted(more, 'smaller tensor')}. " if more > 0 else "")
        + "No file holds these as the model needs them: they are computed, or were merged, split "
        "or cast as the checkpoint was loaded.",
    )


def _files(path: Path) -> dict[str, _File]:
    """The external files of a model by name; a place that several names share counts once."""
    files: dict[str, _File] = {}
    seen: set[tuple[str, int]] = set()
    for graph in io.load(path).graphs():
        for value in graph.initializers.values():
            tensor = value.const_value
            if not isinstance(tensor, ir.ExternalTensor):
                continue
            name = Path(tensor.location).name
            if (name, tensor.offset or 0) not in seen:
                seen.add((name, tensor.offset or 0))
                files.setdefault(name, _File()).sizes[str(value.name)] = tensor.nbytes
    return files
