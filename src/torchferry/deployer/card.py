"""``README.md`` of a deployed folder: what it is, what it costs, how to run it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from torchferry.deployer.layout import FOLDER, Graph, genai_files, optimum_names
from torchferry.report.model import Table
from torchferry.report.number import as_cell
from torchferry.seams.versions import installed

__all__ = ["write_card"]

_LOADS = {
    "onnxruntime": """import torchferry as tf

model = tf.load("{folder}")
{call}""",
    "genai": """import onnxruntime_genai as og

config = og.Config("{folder}")
# Another graph than {path}:
# config.overlay('{{"model": {overlay}}}')
model = og.Model(config)""",
    "optimum": """from optimum.onnxruntime import {optimum}

model = {optimum}.from_pretrained("{folder}", subfolder="{subfolder}"{file})""",
    "transformers.js": """import {{ pipeline }} from "@huggingface/transformers";

const run = await pipeline("{task}", "{folder}", {{ dtype: "{dtype}" }});""",
}
_BY = "Exported and compared with PyTorch by torchferry"
_CALLS = {
    "text": 'model(**tokenizer("Hello", return_tensors="pt"))',
    "tokens": 'model.generate(**tokenizer("Hello", return_tensors="pt"), max_new_tokens=20)',
    "speech": 'model.generate(**processor(samples, return_tensors="pt"), max_new_tokens=20)',
    "audio": 'model(processor(samples, return_tensors="pt").input_values)',
    "image": 'model(**processor(image, return_tensors="pt"))',
}
"""How a model that `tf.load` gave is called."""


def write_card(
    folder: Path,
    title: str,
    tables: Sequence[tuple[str, Table]],
    *,
    graphs: Sequence[Graph],
    runtimes: Sequence[str],
    words: Mapping[str, str],
) -> None:
    """Write the file.

    Args:
        folder: of the deployment.
        title: of the model.
        tables: headings and what stands below them.
        graphs: the default first.
        runtimes: that the folder is for.
        words: ``name`` of the folder, ``task`` of transformers.js, ``optimum``'s class, and the
            key of ``call`` in `_CALLS`.
    """
    first, last = graphs[0], graphs[-1]
    lines = [
        "---",
        "tags:",
        "- onnx",
        "- onnxruntime",
        f"pipeline_tag: {words['task']}",
        "---",
        "",
        f"# {title} for {', '.join(runtimes)}",
        "",
        f"{_BY} {installed('torchferry')}; `report.html` shows every check.",
    ]
    for heading, table in tables:
        lines += ["", f"## {heading}", "", *_markdown(table)]
        lines += ["", table.note] if table.note else []
    lines += ["", "## Running it"]
    for runtime in runtimes:
        text = _LOADS[runtime].format(
            folder=words["name"], path=first.path.as_posix(), overlay=_overlay(last, folder),
            subfolder=FOLDER, file=_file(first), dtype=first.dtype, task=words["task"],
            optimum=words["optimum"], call=_CALLS[words["call"]],
        )  # fmt: skip
        language = "js" if runtime == "transformers.js" else "python"
        lines += ["", f"### {runtime}", "", f"```{language}", text, "```"]
    (folder / "README.md").write_text("\n".join(lines) + "\n", "utf-8")


def _overlay(graph: Graph, folder: Path) -> str:
    """What exchanges the graphs in genai's configuration."""
    files = genai_files(graph, folder)
    return json.dumps({name: {"filename": path.as_posix()} for name, path in files.items()})


def _file(graph: Graph) -> str:
    """How optimum is told of the files, if it does not look for these names by itself."""
    names = optimum_names(graph)
    return "".join(f', {name}="{value}"' for name, value in names.items())


def _markdown(table: Table) -> list[str]:
    rows = [[as_cell(cell).text.replace("|", "\\|") for cell in row] for row in table.rows]
    return [
        f"| {' | '.join(table.columns)} |",
        f"|{'---|' * len(table.columns)}",
        *(f"| {' | '.join(row)} |" for row in rows),
    ]
