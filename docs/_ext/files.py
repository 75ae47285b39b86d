"""The file formats, with the versions that the code writes."""

from __future__ import annotations

import inspect
import textwrap

from rst import code, table

from torchferry.dumper import document, folder
from torchferry.graph.outline import CONDITIONS_KEY, STATE_KEY
from torchferry.graph.runtime import LEAST_KEY
from torchferry.report import json
from torchferry.values.signature import SIGNATURE_KEY, Signature

__all__ = ["text"]


def text(part: str) -> str:
    """A part of the page: ``metadata``, ``signature``, ``dumps`` or ``report``."""
    return {"metadata": _metadata, "signature": _signature, "dumps": _dumps, "report": _report}[
        part
    ]()


_STATE = (
    "JSON, of each name of lifted state: element type, shape, and data before the first call "
    "(zlib, then base64)"
)


def _metadata() -> str:
    rows = [
        (code(SIGNATURE_KEY), "JSON: how the inputs and outputs are nested; see below"),
        (code(CONDITIONS_KEY), "text: conditions of a call, one a line, with the line of code"),
        (code(STATE_KEY), _STATE),
        (code(LEAST_KEY), "the oldest onnxruntime that computes the model right"),
    ]  # fmt: skip
    return table(("key of the model's metadata", "value"), rows, "35 65")


def _signature() -> str:
    about = inspect.getdoc(Signature) or ""
    fields = about.partition("Attributes:\n")[2]
    rows, name, words = [], "", ""
    for line in [*textwrap.dedent(fields).splitlines(), "end: "]:
        if line and not line.startswith(" "):
            if name:
                rows.append((code(name), words.replace("`", "")))
            name, _, words = line.partition(": ")
        else:
            words += " " + line.strip()
    return table(("field", "meaning"), rows, "20 80")


def _dumps() -> str:
    rows = [
        (
            "one file (``.onnx``, ``.safetensors``)",
            code(document.DOCUMENT),
            str(document._VERSION),
        ),
        ("checksum of the above", code(document.CHECKSUM), "SHA-256"),
        ("folder", code("index.json"), str(folder._VERSION)),
    ]
    return table(("dump", "where", "version"), rows, "40 40 20")


def _report() -> str:
    about = inspect.getdoc(json.to_json) or ""
    schema = about.partition("::\n")[2].partition("JSON has no number")[0]
    block = textwrap.indent(textwrap.dedent(schema).strip(), "   ")
    return f"Schema {code(json.SCHEMA)}:\n\n.. code-block:: text\n\n{block}\n\n"
