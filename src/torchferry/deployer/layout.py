"""What a folder is deployed for: runtimes, precisions, and the files of each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from torchferry.errors import UsageError

__all__ = [
    "DECODER", "EMBEDDING", "ENCODER", "FOLDER", "GENAI", "GRAPHS", "MODEL", "PRECISIONS",
    "RUNTIMES", "VISION",
    "Graph", "chosen_graphs", "genai_files", "optimum_names", "precision_of", "read_choice",
]  # fmt: skip

FOLDER = "onnx"
"""Where the graphs lie below a Hugging Face folder: transformers.js looks nowhere else."""
MODEL, ENCODER, DECODER = "model", "encoder_model", "decoder_model_merged"
"""What files of graphs are called: of a model in one, and of an encoder-decoder in two."""
VISION, EMBEDDING = "vision_encoder", "embedding"
"""The same of what stands before the decoder of a vision-language model."""
GENAI = {1: ("genai_model",), 2: ("genai_encoder", "genai_decoder")}
"""The same for genai, by how many there are: see `grouped` and `merge` for what is different."""
RUNTIMES = ("onnxruntime", "genai", "optimum", "transformers.js")
PRECISIONS = ("fp32", "fp16", "bf16", "int8", "int4")


@dataclass(frozen=True)
class Graph:
    """One of the graphs of a folder.

    Attributes:
        name: as reports call it.
        end: of its files' names: ``_q4`` is ``onnx/model_q4.onnx``, as transformers.js wants it.
        floats: what is not quantized: ``fp32``, ``fp16`` or ``bf16``.
        recipe: bits of the weights, ``int8`` or ``int4``; empty for none.
        dtype: what transformers.js calls it; empty if it runs there in no form.
        parts: what its files are called without the end, the one that gives logits last.
    """

    name: str
    end: str
    floats: str
    recipe: str
    dtype: str
    parts: tuple[str, ...] = (MODEL,)

    @property
    def paths(self) -> tuple[Path, ...]:
        """Of the files, below the folder."""
        return tuple(Path(FOLDER) / f"{part}{self.end}.onnx" for part in self.parts)

    @property
    def path(self) -> Path:
        """Of the file that gives logits."""
        return self.paths[-1]

    @property
    def exact(self) -> bool:
        """Whether it has to give the same tokens as PyTorch in float32."""
        return not self.recipe and self.floats != "bf16"


GRAPHS = (
    Graph("fp32", "", "fp32", "", "fp32"),
    Graph("fp16", "_fp16", "fp16", "", "fp16"),
    Graph("bf16", "_bf16", "bf16", "", ""),
    Graph("int8", "_quantized", "fp32", "int8", "q8"),
    Graph("int4", "_q4", "fp32", "int4", "q4"),
    Graph("int4+fp16", "_q4f16", "fp16", "int4", "q4f16"),
)
"""The last one is for WebGPU: it comes if both int4 and fp16 are asked for."""


def precision_of(file: str) -> str:
    """The name of the graph that a file of a deployed folder holds; its stem if it is none.

    >>> precision_of("onnx/decoder_model_merged_q4.onnx")
    'int4'
    """
    stem = Path(file).stem
    ends = {f"{part}{graph.end}": graph.name for graph in GRAPHS for part in (MODEL, DECODER)}
    return ends.get(stem, stem)


def genai_files(graph: Graph, folder: Path) -> dict[str, Path]:
    """The files that genai runs, by what its configuration calls them.

    Args:
        graph: which graph.
        folder: of the deployment, in which genai may have files of its own.
    """
    if VISION in graph.parts:
        return dict(zip(("vision", "embedding", "decoder"), graph.paths, strict=True))
    own = replace(graph, parts=GENAI[len(graph.parts)]).paths
    paths = own if (folder / own[-1]).is_file() else graph.paths
    names = ("encoder", "decoder")[-len(paths) :]
    return dict(zip(names, paths, strict=True))


def optimum_names(graph: Graph) -> dict[str, str]:
    """Arguments of optimum's ``from_pretrained`` that name the files of a graph.

    A merged decoder that is not called as optimum expects has to be named for both of its uses,
    and is loaded twice.
    """
    if ENCODER not in graph.parts:
        return {"file_name": graph.path.name}
    encoder, decoder = (path.name for path in graph.paths)
    both = {"decoder_file_name": decoder, "decoder_with_past_file_name": decoder}
    return {"encoder_file_name": encoder, **both} if graph.end else {}


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


def chosen_graphs(
    precisions: Sequence[str], parts: tuple[str, ...] = (MODEL,)
) -> tuple[Graph, ...]:
    """The graphs that some precisions stand for; the first of them is the folder's default.

    >>> [graph.path.stem for graph in chosen_graphs(("int4", "fp16"))]
    ['model_q4', 'model_fp16', 'model_q4f16']
    """
    by_name = {graph.name: replace(graph, parts=parts) for graph in GRAPHS}
    graphs = [by_name[name] for name in precisions]
    both = {"int4", "fp16"} <= {*precisions}
    return (*graphs, *([by_name["int4+fp16"]] if both else []))
