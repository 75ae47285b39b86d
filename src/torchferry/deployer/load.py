"""Read what torchferry wrote: an exported model, or a deployed folder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from torchferry.deployer.manifest import is_deployed, read_manifest
from torchferry.deployer.seq2seq import GENERATORS
from torchferry.exporter import program

__all__ = ["load"]


def load(path: Path | str, *, graph: str | None = None) -> Any:
    """Read a model that torchferry wrote; executes nothing from a file.

    Args:
        path: an ``.onnx`` file or the folder of an export: gives an `OnnxProgram`; or a deployed
            folder: of a decoder or an encoder-decoder it gives a model with transformers'
            ``generate(...)`` that runs onnxruntime, of another model an `OnnxProgram`.
        graph: which graph of a deployed folder: ``"onnx/model_q4.onnx"``; its default when
            ``None``.

    Raises:
        UsageError: there is no such file, or it was not written by torchferry.
        RunError: onnxruntime cannot load it.
    """
    path = Path(path)
    if not path.is_dir() or not is_deployed(path):
        return program.load(path)
    manifest = read_manifest(path)
    file = path / (graph or manifest.graphs[0])
    load_generator = GENERATORS.get(manifest.kind)
    return program.load(file) if load_generator is None else load_generator(path, file)
