"""Runs of element-wise operators into kernels of our making."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path

import onnx
import onnx_ir as ir

from torchferry.optimizer.kernels.library import build_library, compiler, library_folder
from torchferry.optimizer.kernels.runs import Run, find_runs
from torchferry.optimizer.kernels.source import DOMAIN, Kernel, kernel_of, library_source

__all__ = ["fuse_element_wise", "kernel_library", "save_library"]

_KEY = "pkg.torchferry.kernels"
_BY = "pkg.torchferry.rule"


def fuse_element_wise(model: ir.Model) -> int:
    """``Mul(Mul(Sigmoid(x), x), y)``  →  ``torchferry.kernels.SigmoidMulMul_…(x, y)``

    The kernels are compiled here, for this machine; a session needs their library, see
    `kernel_library`. Without a C compiler the model stays as it is, which is logged.

    Args:
        model: changed in place. Subgraphs and functions are left alone, and so is a model that
            has such kernels already.

    Returns:
        How many operators less there are.
    """
    runs = [] if _KEY in model.metadata_props else find_runs(model.graph)
    if not runs or compiler() is None:
        return 0
    kernels = [kernel_of(run) for run in runs]
    library = build_library(library_source(kernels))
    if library is None:
        return 0
    made: dict[ir.Value, ir.Value] = {}
    for run, kernel in zip(runs, kernels, strict=True):
        made[run.output] = _replace(model.graph, run, kernel, made)
    model.opset_imports[DOMAIN] = 1
    model.metadata_props[_KEY] = library.name
    return sum(len(run.nodes) - 1 for run in runs)


def kernel_library(model: ir.Model | onnx.ModelProto) -> Path | None:
    """The library that a session of a model needs: ``register_custom_ops_library`` takes it.

    Args:
        model: that was optimized with ``experimental``, or not.

    Returns:
        ``None`` when the model has no kernels of ours. The file may be gone: the cache was
        emptied, or the model was made on another machine.
    """
    if isinstance(model, ir.Model):
        name = model.metadata_props.get(_KEY)
    else:
        name = next((entry.value for entry in model.metadata_props if entry.key == _KEY), None)
    # A model's text must not lead elsewhere.
    return None if name is None else library_folder() / Path(name).name


def save_library(model: ir.Model, path: Path) -> Path | None:
    """Put the library of a model beside its file, as ``model.kernels.so``.

    Args:
        model: that was optimized with ``experimental``.
        path: of its ``.onnx`` file.

    Returns:
        The copy; ``None`` when the model needs none.
    """
    library = kernel_library(model)
    if library is None:
        return None
    copy = path.with_suffix(".kernels.so")
    part = copy.with_suffix(".part")
    shutil.copyfile(library, part)
    part.replace(copy)
    return copy


def _replace(
    graph: ir.Graph, run: Run, kernel: Kernel, made: Mapping[ir.Value, ir.Value]
) -> ir.Value:
    """Put a kernel in the place of a run; what it reads may be a kernel's by now, as ``made``."""
    last, old = run.nodes[-1], run.output
    inputs = [made.get(value, value) for value in run.inputs]
    new = ir.node(kernel.name, inputs, domain=DOMAIN, name=last.name)
    value = new.outputs[0]
    value.type, value.shape = old.type, old.shape
    new.metadata_props.update(last.metadata_props)
    new.metadata_props[_BY] = "FuseElementwise"
    graph.insert_before(last, new)
    name, old.name = old.name, None
    value.name = name
    ir.convenience.replace_all_uses_with(old, value, replace_graph_outputs=True)
    for node in reversed(run.nodes):
        graph.remove(node, safe=True)
    return value
