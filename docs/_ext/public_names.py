"""The API pages: every public name, with the scripts of the site that use it."""

from __future__ import annotations

import ast
import importlib
import inspect
from functools import cache
from pathlib import Path
from typing import Any

import torchferry

__all__ = ["BESIDE", "GROUPS", "api", "full_name", "undocumented", "users_of", "value_of"]

DOCS = Path(__file__).resolve().parents[1]
SCRIPTS = {"guides": "auto_guides", "gallery": "auto_gallery", "../examples": "auto_examples"}

GROUPS: dict[str, tuple[str, ...]] = {
    "walk": ("export", "OnnxProgram", "load", "deploy", "observe", "Observation", "capture",
             "convert", "to_onnx", "optimize", "OptimizationOptions", "run",
             "onnx_custom_backend"),
    "inputs": ("ModelInputs", "use_dyn_not_str", "use_str_not_dyn", "make_dynamic_cache",
               "make_static_cache", "make_encoder_decoder_cache", "make_sliding_window_cache",
               "make_hybrid_cache", "make_mamba_cache", "cache_tensors", "get_tiny_llm",
               "dummy_llm"),
    "values": ("string_type", "max_diff", "string_diff", "steal_forward", "steal_append",
               "create_onnx_model_from_input_tensors", "create_input_tensors_from_onnx_model",
               "draw_svg", "plot_dot", "plot_legend"),
    "faults": ("compare", "diagnose", "trace_execution_piece_by_piece", "trace_forward_execution",
               "ModelDiagnoseOutput", "CustomOpStrategy", "StatusExport", "StatusExportCode"),
    "extend": ("lowers", "torch_export_patches", "bypass_export_some_errors"),
    "errors": ("FerryError", "UsageError", "CaptureError", "ConversionError", "MissingLowering",
               "LoweringFailed", "RunError", "Mismatch"),
}  # fmt: skip
"""Public names by page, in the order they are shown."""


BESIDE: dict[str, tuple[str, ...]] = {
    "walk": ("exporter.deliver.deliver", "report.Report", "capturer.Captured", "judge.Tolerance"),
    "inputs": ("observer.keywords.explicit_keywords", "values.register_pytrees",
               "values.kinds.register", "zoo.families"),
    "values": ("values.Discrepancy",),
    "faults": ("comparer.Comparison", "comparer.Row", "diagnoser.Diagnosis"),
    "extend": ("capturer.Patch", "graph.bind_weights"),
}  # fmt: skip
"""What the public names give and take, and what messages name, with the module that has it."""


def api(group: str) -> str:
    """The entries of a page, each with links to what uses it."""
    return "".join(map(_entry, (*GROUPS[group], *BESIDE.get(group, ()))))


def value_of(name: str) -> Any:
    """What a name stands for, as ``export`` or ``judge.Tolerance``."""
    module, _, last = name.rpartition(".")
    return getattr(importlib.import_module(f"torchferry.{module}".rstrip(".")), last)


def full_name(text: str) -> str:
    """``torchferry.judge.Tolerance`` for ``Tolerance``; empty for what has no entry."""
    bare = text.removeprefix("torchferry.").removesuffix("()")
    if bare.partition(".")[0] in torchferry.__all__:
        return f"torchferry.{bare}"
    known = [name for names in BESIDE.values() for name in names]
    return next(
        (f"torchferry.{name}" for name in known if bare in (name, name.rpartition(".")[2])), ""
    )


def _entry(name: str) -> str:
    value = value_of(name)
    kind = "function"
    options = ""
    if inspect.isclass(value):
        kind = "exception" if issubclass(value, Exception) else "class"
        options = "   :members:\n"
        options += "   :inherited-members: object\n" if name == "ModelDiagnoseOutput" else ""
    users = users_of(name)
    used = f"   Shown in {', '.join(f':doc:`{page}`' for page in users)}.\n" if users else ""
    return f".. auto{kind}:: torchferry.{name}\n{options}\n{used}\n"


def undocumented() -> list[str]:
    """Public names that no page has, or that no example runs."""
    shown = {name for names in GROUPS.values() for name in names}
    beside = [name for names in BESIDE.values() for name in names]
    return [
        name
        for name in (*torchferry.__all__, *beside)
        if name not in {*shown, *beside} or not (users_of(name) or _has_doctest(name))
    ]


def _has_doctest(name: str) -> bool:
    return ">>>" in (inspect.getdoc(value_of(name)) or "")


@cache
def _names_in_scripts() -> dict[str, frozenset[str]]:
    """Page of each script that the build runs, to the public names it uses."""
    found = {}
    for folder, gallery in SCRIPTS.items():
        for path in sorted((DOCS / folder).glob("*.py")):
            tree = ast.parse(path.read_text("utf-8"))
            found[f"/{gallery}/{path.stem}"] = frozenset(
                name for node in ast.walk(tree) for name in _names_of(node)
            )
    return found


def _names_of(node: ast.AST) -> list[str]:
    """``export`` of ``tf.export``, ``graph.bind_weights`` of what is imported from there."""
    if isinstance(node, ast.Attribute) and ast.unparse(node.value) == "tf":
        return [node.attr]
    if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("torchferry."):
        place = str(node.module).removeprefix("torchferry.")
        return [f"{place}.{alias.name}" for alias in node.names]
    return []


def users_of(name: str, most: int = 4) -> list[str]:
    """Pages of the scripts that use a public name, at most so many."""
    return [page for page, names in _names_in_scripts().items() if name in names][:most]
