"""torchferry takes a PyTorch model to ONNX Runtime and proves that it computes the same.

>>> import torchferry as tf
>>> tf.__version__
'0.2.0'

Importing the package imports neither torch nor onnx: each public name loads its room when it is
first used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torchferry.capturer import bypass_export_some_errors, capture, torch_export_patches
    from torchferry.comparer import compare
    from torchferry.compiler import onnx_custom_backend
    from torchferry.converter import convert, lowers
    from torchferry.deployer import deploy, load
    from torchferry.diagnoser import (
        CustomOpStrategy,
        ModelDiagnoseOutput,
        StatusExport,
        StatusExportCode,
        diagnose,
        trace_execution_piece_by_piece,
        trace_forward_execution,
    )
    from torchferry.dumper import (
        create_input_tensors_from_onnx_model,
        create_onnx_model_from_input_tensors,
    )
    from torchferry.errors import (
        CaptureError,
        ConversionError,
        FerryError,
        LoweringFailed,
        MissingLowering,
        RunError,
        UsageError,
    )
    from torchferry.exporter import OnnxProgram, export, to_onnx
    from torchferry.graph import draw_svg, plot_dot, plot_legend
    from torchferry.observer import (
        ModelInputs,
        Observation,
        observe,
        steal_append,
        steal_forward,
        use_dyn_not_str,
        use_str_not_dyn,
    )
    from torchferry.optimizer import OptimizationOptions, optimize
    from torchferry.runner import run
    from torchferry.values import (
        cache_tensors,
        make_dynamic_cache,
        make_encoder_decoder_cache,
        make_hybrid_cache,
        make_mamba_cache,
        make_sliding_window_cache,
        make_static_cache,
        max_diff,
        string_diff,
        string_type,
    )
    from torchferry.zoo import dummy_llm, get_tiny_llm

__version__ = "0.2.0"

_ROOMS = {
    "capturer": ("bypass_export_some_errors", "capture", "torch_export_patches"),
    "comparer": ("compare",),
    "compiler": ("onnx_custom_backend",),
    "converter": ("convert", "lowers"),
    "deployer": ("deploy", "load"),
    "diagnoser": (
        "CustomOpStrategy",
        "ModelDiagnoseOutput",
        "StatusExport",
        "StatusExportCode",
        "diagnose",
        "trace_execution_piece_by_piece",
        "trace_forward_execution",
    ),
    "dumper": ("create_input_tensors_from_onnx_model", "create_onnx_model_from_input_tensors"),
    "errors": (
        "CaptureError",
        "ConversionError",
        "FerryError",
        "LoweringFailed",
        "Mismatch",
        "MissingLowering",
        "RunError",
        "UsageError",
    ),
    "exporter": ("OnnxProgram", "export", "to_onnx"),
    "graph": ("draw_svg", "plot_dot", "plot_legend"),
    "observer": (
        "ModelInputs",
        "Observation",
        "observe",
        "steal_append",
        "steal_forward",
        "use_dyn_not_str",
        "use_str_not_dyn",
    ),
    "optimizer": ("OptimizationOptions", "optimize"),
    "runner": ("run",),
    "values": (
        "cache_tensors",
        "make_dynamic_cache",
        "make_encoder_decoder_cache",
        "make_hybrid_cache",
        "make_mamba_cache",
        "make_sliding_window_cache",
        "make_static_cache",
        "max_diff",
        "string_diff",
        "string_type",
    ),
    "zoo": ("dummy_llm", "get_tiny_llm"),
}
_HOME = {name: f"torchferry.{room}" for room, names in _ROOMS.items() for name in names}

__all__ = [
    "CaptureError",
    "ConversionError",
    "CustomOpStrategy",
    "FerryError",
    "LoweringFailed",
    "Mismatch",
    "MissingLowering",
    "ModelDiagnoseOutput",
    "ModelInputs",
    "Observation",
    "OnnxProgram",
    "OptimizationOptions",
    "RunError",
    "StatusExport",
    "StatusExportCode",
    "UsageError",
    "bypass_export_some_errors",
    "cache_tensors",
    "capture",
    "compare",
    "convert",
    "create_input_tensors_from_onnx_model",
    "create_onnx_model_from_input_tensors",
    "deploy",
    "diagnose",
    "draw_svg",
    "dummy_llm",
    "export",
    "get_tiny_llm",
    "load",
    "lowers",
    "make_dynamic_cache",
    "make_encoder_decoder_cache",
    "make_hybrid_cache",
    "make_mamba_cache",
    "make_sliding_window_cache",
    "make_static_cache",
    "max_diff",
    "observe",
    "onnx_custom_backend",
    "optimize",
    "plot_dot",
    "plot_legend",
    "run",
    "steal_append",
    "steal_forward",
    "string_diff",
    "string_type",
    "to_onnx",
    "torch_export_patches",
    "trace_execution_piece_by_piece",
    "trace_forward_execution",
    "use_dyn_not_str",
    "use_str_not_dyn",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(_HOME[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
