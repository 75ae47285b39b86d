"""What a folder is deployed for: runtimes, precisions, and the files of each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from torchferry.errors import UsageError

__all__ = [
    "FOLDER", "GRAPHS", "PRECISIONS", "RUNTIMES", "Graph", "chosen_graphs", "read_choice",
]  # fmt: skip

FOLDER = "onnx"
"""Where the graphs lie below a Hugging Face folder: transformers.js looks nowhere else."""
RUNTIMES = ("onnxruntime", "genai", "optimum", "transformers.js")
PRECISIONS = ("fp32", "fp16", "int8", "int4")


@dataclass(frozen=True)
class Graph:
    """One of the graphs of a folder.

    Attributes:
        name: as reports call it.
        stem: of its file: ``model_q4`` is ``onnx/model_q4.onnx``, as transformers.js wants it.
        floats: what is not quantized: ``fp32`` or ``fp16``.
        recipe: bits of the weights, ``int8`` or ``int4``; empty for none.
        dtype: what transformers.js calls it.
    """

    name: str
    stem: str
    floats: str
    recipe: str
    dtype: str

    @property
    def path(self) -> Path:
        """Of the file, below the folder."""
        return Path(FOLDER) / f"{self.stem}.onnx"

    @property
    def exact(self) -> bool:
        """Whether it has to give the same tokens as PyTorch."""
        return not self.recipe


GRAPHS = (
    Graph("fp32", "model", "fp32", "", "fp32"),
    Graph("fp16", "model_fp16", "fp16", "", "fp16"),
    Graph("int8", "model_quantized", "fp32", "int8", "q8"),
    Graph("int4", "model_q4", "fp32", "int4", "q4"),
    Graph("int4+fp16", "model_q4f16", "fp16", "int4", "q4f16"),
)
"""The last one is for WebGPU: it comes if both int4 and fp16 are asked for."""


def read_choice(text: str | Sequence[str], known: Sequence[str], what: str) -> tuple[str, ...]:
    """The entries of a comma-separated list, each once, in the order given.

    Args:
        text: as on the command line, or a sequence.
        known: what may stand in it.
        what: an entry, for messages: ``"runtime"``.

    Raises:
        UsageError: the list is empty, or one of its entries is not known.

    >>> read_choice("int8,fp32", PRECISIONS, "precision")
    ('int8', 'fp32')
    """
    entries = text.split(",") if isinstance(text, str) else text
    chosen = tuple(dict.fromkeys(entry.strip() for entry in entries if entry.strip()))
    unknown = [entry for entry in chosen if entry not in known]
    if unknown or not chosen:
        said = f"there is no {what} {unknown[0]!r}" if unknown else f"no {what} is given"
        raise UsageError(f"{said}: choose from {', '.join(known)}")
    return chosen


def chosen_graphs(precisions: Sequence[str]) -> tuple[Graph, ...]:
    """The graphs that some precisions stand for; the first of them is the folder's default.

    >>> [graph.stem for graph in chosen_graphs(("int4", "fp16"))]
    ['model_q4', 'model_fp16', 'model_q4f16']
    """
    by_name = {graph.name: graph for graph in GRAPHS}
    graphs = [by_name[name] for name in precisions]
    both = {"int4", "fp16"} <= {*precisions}
    return (*graphs, *([by_name["int4+fp16"]] if both else []))
