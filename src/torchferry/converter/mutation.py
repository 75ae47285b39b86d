"""Refuse programs that write to a buffer or an input: an ONNX graph would drop the write."""

from __future__ import annotations

import warnings

import torch
from torch.export import ExportedProgram
from torch.export.graph_signature import OutputKind

from torchferry.converter.provenance import user_line
from torchferry.errors import ConversionError

__all__ = ["refuse_mutations"]


def refuse_mutations(program: ExportedProgram) -> None:
    """Check that the program leaves its inputs, buffers and parameters as they are.

    Raises:
        ConversionError: names what is written to, and the user's line.
    """
    writes = [node for node in program.graph.nodes if _writes(node)]
    if not writes:
        return
    # Only functionalization knows through which views a write reaches an input.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # torch 2.13 warns about its own pytrees
        functional = program.run_decompositions({})
    mutated = [
        f"{spec.kind.name.split('_')[0].lower()} {spec.target}"
        for spec in functional.graph_signature.output_specs
        if spec.kind is not OutputKind.USER_OUTPUT
    ]
    if mutated:
        line = next((line for node in writes if (line := user_line(node.stack_trace))), None)
        raise ConversionError(
            f"forward writes to {', '.join(mutated)}"
            + (f", near {line}" if line else "")
            + ". An ONNX graph has no state, so the write would be lost: return the new value "
            "as an output, or take a copy first (x = x.clone())",
            node=writes[0].name,
            source_line=line,
        )


def _writes(node: torch.fx.Node) -> bool:
    schema = getattr(node.target, "_schema", None)
    # torch.tensor(...) inside forward is traced as detach_ of a fresh copy.
    fresh = node.target is torch.ops.aten.detach_.default
    return bool(schema is not None and schema.is_mutable and not fresh)
