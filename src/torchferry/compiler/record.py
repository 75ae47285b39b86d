"""What users ask to keep of each compiled graph: in a dictionary, or in files."""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

import onnx_ir as ir
from torch import fx

from torchferry.compiler.cuda import Provider
from torchferry.compiler.session import TensorSession
from torchferry.graph import io
from torchferry.optimizer.options import OptimizationOptions

if TYPE_CHECKING:  # translating takes a converter, and a graph from the cache needs none
    from torchferry.compiler.graph import Translated

__all__ = ["Settings", "record"]

Dimension = tuple[bool, int, str | None, int]  # a size?, rank, name, ONNX element type


@dataclass(frozen=True)
class Settings:
    """What a user asked of the backend.

    Attributes:
        opset: ONNX operator set.
        options: the rewrites; ``None`` for none.
        providers: onnxruntime's execution providers; by the device of the tensors when ``None``.
        session_options: attributes and configuration entries of onnxruntime's sessions.
        storage: where a dictionary for each compiled graph goes.
        dump_prefix: how the names of dumped files begin.
        keep_values: keep the inputs and outputs of every call in the storage.
        verbose: 1 logs every graph.
        cache: keep sessions on disk for other processes, where nothing above asks to see them.
        verify: hold the first call at each set of sizes to PyTorch.
    """

    opset: int
    options: OptimizationOptions | None = None
    providers: Sequence[Provider] | None = None
    storage: MutableMapping[str, Any] | None = None
    dump_prefix: str | None = None
    keep_values: bool = False
    verbose: int = 0
    cache: bool = True
    verify: bool = False
    session_options: Mapping[str, Any] | None = None


def record(
    settings: Settings,
    module: fx.GraphModule,
    translated: Translated,
    session: TensorSession,
) -> dict[str, Any] | None:
    """Store and dump a compiled graph, as far as the settings ask for it.

    The storage gets, in the list ``"instance"``, a dictionary with ``graph_module`` (the FX
    graph), ``onnx`` (an ``onnx.ModelProto``; weights over 1 KiB are only named in it), ``sess``
    (the onnxruntime session), ``providers``, ``is_dimension_in`` and ``is_dimension_out`` (for
    each input or output: is it a size, its rank, its name if it is a size, its ONNX element type),
    ``input_names``, ``output_names``, ``inputs`` and ``outputs`` (one list of tensors for each
    call, if they are kept). The number in the names of dumped files is the first that is free;
    weights stand beside the model, in ``PREFIX_0.onnx_data``.

    Returns:
        The dictionary that the storage got for it, if any.
    """
    if settings.dump_prefix is not None:
        _dump(settings.dump_prefix, module, translated.model)
    if settings.storage is None:
        return None
    sizes = [feed.size for feed in translated.feeds]
    numbers = {result.output for result in translated.results if result.number}
    graph = translated.model.graph
    instance: dict[str, Any] = {
        "graph_module": module,
        "onnx": session.proto,
        "sess": session.session,
        "providers": session.session.get_providers(),
        "is_dimension_in": [
            _dimension(value, size) for value, size in zip(graph.inputs, sizes, strict=True)
        ],
        "is_dimension_out": [
            _dimension(value, index in numbers) for index, value in enumerate(graph.outputs)
        ],
        "input_names": list(session.inputs),
        "output_names": list(session.outputs),
        "inputs": [],
        "outputs": [],
    }
    settings.storage.setdefault("instance", []).append(instance)
    return instance


def _dimension(value: ir.Value, size: bool) -> Dimension:
    rank = 0 if value.shape is None else len(value.shape)
    element = 0 if value.dtype is None else value.dtype.value
    return size, rank, value.name if size else None, element


def _dump(prefix: str, module: fx.GraphModule, model: ir.Model) -> None:
    number = next(n for n in count() if not Path(f"{prefix}_{n}.onnx").exists())
    path = Path(f"{prefix}_{number}.onnx")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.with_suffix(".txt").write_text(f"{module.graph}\n", "utf-8")
    io.save(model, path)
