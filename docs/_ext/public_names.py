"""The API pages: every public name, with the scripts of the site that use it."""

from __future__ import annotations

import ast
import inspect
from functools import cache
from pathlib import Path

import torchferry

__all__ = ["GROUPS", "api", "undocumented", "users_of"]

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


def api(group: str) -> str:
    """The entries of a page, each with links to what uses it."""
    return "".join(_entry(name) for name in GROUPS[group])


def _entry(name: str) -> str:
    value = getattr(torchferry, name)
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
    return [
        name
        for name in torchferry.__all__
        if name not in shown or not (users_of(name) or _has_doctest(name))
    ]


def _has_doctest(name: str) -> bool:
    return ">>>" in (inspect.getdoc(getattr(torchferry, name)) or "")


@cache
def _names_in_scripts() -> dict[str, frozenset[str]]:
    """Page of each script that the build runs, to the public names it uses."""
    found = {}
    for folder, gallery in SCRIPTS.items():
        for path in sorted((DOCS / folder).glob("*.py")):
            tree = ast.parse(path.read_text("utf-8"))
            found[f"/{gallery}/{path.stem}"] = frozenset(
                node.attr
                for node in ast.walk(tree)
                if isinstance(node, ast.Attribute) and ast.unparse(node.value) == "tf"
            )
    return found


def users_of(name: str, most: int = 4) -> list[str]:
    """Pages of the scripts that use a public name, at most so many."""
    return [page for page, names in _names_in_scripts().items() if name in names][:most]
