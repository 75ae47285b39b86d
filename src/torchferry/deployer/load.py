"""Read what torchferry wrote: an exported model, or a deployed folder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from torchferry.deployer.generate.seq2seq import GENERATORS
from torchferry.deployer.layout import precision_of
from torchferry.deployer.manifest import Manifest, is_deployed, read_manifest
from torchferry.errors import UsageError
from torchferry.exporter import program

__all__ = ["find_graph", "load"]


def load(path: Path | str, *, graph: str | None = None, precision: str | None = None) -> Any:
    """Read a model that torchferry wrote; executes nothing from a file.

    Args:
        path: an ``.onnx`` file or the folder of an export: gives an `OnnxProgram`; or a deployed
            folder: of a decoder or an encoder-decoder it gives a model with transformers'
            ``generate(...)`` that runs onnxruntime, of another model an `OnnxProgram`.
        graph: which graph of a deployed folder: ``"onnx/model_q4.onnx"``; its default when
            ``None``.
        precision: the same by its name: ``"int4"``.

    Raises:
        UsageError: there is no such file or precision, or it was not written by torchferry.
        RunError: onnxruntime cannot load it.
    """
    path = Path(path)
    if not path.is_dir() or not is_deployed(path):
        if graph is not None or precision is not None:
            raise UsageError(
                f"{path} is no folder that torchferry deploy wrote, and graph= and precision= "
                "choose among the graphs of one: leave them out"
            )
        return program.load(path)
    if graph is not None and precision is not None:
        raise UsageError("graph= and precision= both choose a graph: give one of them")
    manifest = read_manifest(path)
    file = find_graph(path, manifest, precision) if graph is None else path / graph
    load_generator = GENERATORS.get(manifest.kind)
    return program.load(file) if load_generator is None else load_generator(path, file)


def find_graph(folder: Path, manifest: Manifest, precision: str | None = None) -> Path:
    """The graph of a deployed folder that gives logits.

    Args:
        folder: of the deployment.
        manifest: what it holds.
        precision: by its name in reports; the folder's default when ``None``.

    Raises:
        UsageError: the folder holds no such precision.
    """
    held = {precision_of(file): folder / file for file in manifest.graphs}
    if precision is not None and precision not in held:
        raise UsageError(
            f"{folder} holds no {precision} graph: choose from {', '.join(held)}, or deploy the "
            f"model again with --precision {precision}"
        )
    return folder / manifest.graphs[0] if precision is None else held[precision]
