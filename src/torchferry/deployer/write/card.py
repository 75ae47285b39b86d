"""``README.md`` of a deployed folder: what it is, what it costs, how to run it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from torchferry.deployer.layout import FOLDER, Graph, genai_files, optimum_names
from torchferry.report.model import Table
from torchferry.report.number import as_cell
from torchferry.seams.versions import installed

__all__ = ["write_card"]

_LOADS = {
    "onnxruntime": """import torchferry as tf
{objects}
model = tf.load("{folder}")
{call}""",
    "genai": """import numpy as np
import onnxruntime_genai as og

config = og.Config("{folder}")
# Another graph than {path}:
# config.overlay('{{"model": {overlay}}}')
model = og.Model(config)
params = og.GeneratorParams(model)
params.set_search_options(max_length=64)
generator = og.Generator(model, params)
{genai}
while not generator.is_done():
    generator.generate_next_token()
print(og.Tokenizer(model).decode(generator.get_sequence(0)))""",
    "optimum": """from optimum.onnxruntime import {optimum}
{objects}
model = {optimum}.from_pretrained("{folder}", subfolder="{subfolder}"{file})
{call}""",
    "transformers.js": """import {{ pipeline }} from "@huggingface/transformers";

const run = await pipeline("{task}", "{folder}", {{ dtype: "{dtype}" }});
console.log(await run({sample}));""",
}
_BY = "Exported and compared with PyTorch by torchferry"


@dataclass(frozen=True)
class _Call:
    """How a model is called in Python, and in JavaScript.

    Attributes:
        maker: the class of transformers that makes its inputs.
        name: of the object.
        file: that the class reads: without it inputs are random numbers.
        given: lines that make what the object is given.
        inputs: that it makes.
        own: the first input without it.
        script: what a pipeline of transformers.js is given.
    """

    maker: str
    name: str
    file: str
    given: str
    inputs: str
    own: str
    script: str


_PROCESSOR = "preprocessor_config.json"
_IMAGE = 'from PIL import Image\n\nimage = Image.open("image.png")'
_SAMPLES = "import numpy as np\n\nsamples = np.zeros(16000, np.float32)  # one second"
_HEARD = 'processor(samples, sampling_rate=16000, return_tensors="pt")'
_TEXT = _Call(
    "AutoTokenizer", "tokenizer", "tokenizer.json", "",
    '**tokenizer("Hello", return_tensors="pt")', "torch.tensor([[1, 2, 3]])", '"Hello"',
)  # fmt: skip
_CALLS = {
    "image": _Call(
        "AutoImageProcessor", "processor", _PROCESSOR,
        _IMAGE,
        '**processor(image, return_tensors="pt")', "torch.rand{shape}", '"image.png"',
    ),
    "audio": _Call(
        "AutoFeatureExtractor", "processor", _PROCESSOR, _SAMPLES,
        f"input_values={_HEARD}.input_values", "torch.rand{shape}", '"sound.wav"',
    ),
    "speech": _Call(
        "AutoProcessor", "processor", _PROCESSOR, _SAMPLES, f"**{_HEARD}", "torch.rand{shape}",
        '"sound.wav"',
    ),
    "dual-encoder": _Call(
        "AutoProcessor", "processor", _PROCESSOR, _IMAGE,
        '**processor(text=["a cat", "a dog"], images=image, padding=True, return_tensors="pt")',
        "{sample}", '"image.png", ["a cat", "a dog"]',
    ),
    "vision-language": _Call(
        "AutoProcessor", "processor", _PROCESSOR, _IMAGE,
        '**processor(text="{prompt}", images=image, return_tensors="pt")',
        "torch.tensor([[1, 2, 3]])", "",
    ),
}  # fmt: skip
"""By the kind of model; the others read text."""
_GENERATING = ("decoder", "seq2seq", "speech", "vision-language")
_SEES = """from PIL import Image
from transformers import AutoProcessor

read = AutoProcessor.from_pretrained("{name}")
inputs = read(text="{prompt}", images=Image.open("image.png"), return_tensors="np")
images = og.NamedTensors()
for name in {images}:
    images[name] = inputs[name]
images["num_image_tokens"] = np.array([(inputs["input_ids"] == {token}).sum()])
generator.set_inputs(images)
generator.append_tokens(inputs["input_ids"].astype(np.int32))"""


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
        words: ``name`` of the folder, ``task`` of transformers.js, ``optimum``'s class, the
            ``kind`` of model, its first ``input`` with an example's ``shape``, the token that a
            decoder of sounds has to ``start`` with; of two towers a ``sample`` of inputs; of a
            vision-language model a ``prompt``, inputs of ``images``, and their ``token``.
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
    objects, call = _python(folder, words)
    for runtime in runtimes:
        text = _LOADS[runtime].format(
            folder=words["name"], path=first.path.as_posix(), overlay=_overlay(last, folder),
            subfolder=FOLDER, file=_file(first), dtype=first.dtype, task=words["task"],
            optimum=words["optimum"], objects=objects, call=call, genai=_genai(words),
            sample=_CALLS.get(words["kind"], _TEXT).script,
        )  # fmt: skip
        language = "js" if runtime == "transformers.js" else "python"
        lines += ["", f"### {runtime}", "", f"```{language}", text, "```"]
    (folder / "README.md").write_text("\n".join(lines) + "\n", "utf-8")


def _python(folder: Path, words: Mapping[str, str]) -> tuple[str, str]:
    """Lines of Python that make what a model is called with, and those that call it."""
    call = _CALLS.get(words["kind"], _TEXT)
    generates = words["kind"] in _GENERATING
    method, more = ("model.generate", ", max_new_tokens=20") if generates else ("model", "")
    if not (folder / call.file).is_file():
        own = call.own.format_map(words)
        return "import torch\n", f"outputs = {method}({words['input']}={own}{more})"
    lines = [call.given] if call.given else []
    lines.append(f"from transformers import {call.maker}\n")
    lines.append(f'{call.name} = {call.maker}.from_pretrained("{words["name"]}")')
    written = f"\nprint({call.name}.batch_decode(outputs)[0])" if generates else ""
    return "\n".join(lines), f"outputs = {method}({call.inputs.format_map(words)}{more}){written}"


def _genai(words: Mapping[str, str]) -> str:
    """How genai is given a prompt."""
    if words["kind"] == "vision-language":
        return _SEES.format_map(words)
    if words["kind"] != "speech":
        return 'generator.append_tokens(og.Tokenizer(model).encode("Hello"))'
    return (
        f"features = np.zeros({words['shape']}, np.float32)  # as transformers' processor gives\n"
        'generator.set_model_input("input_features", features)\n'
        f"generator.append_tokens(np.array([[{words['start']}]], np.int32))"
    )


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
