"""The runtimes that a folder is proven in: which are installed, and how each generates."""

from __future__ import annotations

import importlib
import json
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from importlib.metadata import PackageNotFoundError, version
from importlib.resources import files
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import torch

from torchferry.deployer.generate.cache import as_value
from torchferry.deployer.generate.seq2seq import GENERATORS
from torchferry.deployer.kind import Kind, task_of
from torchferry.deployer.layout import FOLDER, Graph, genai_files, optimum_names
from torchferry.deployer.prove.corpus import Batch, Picture, Prompt, Sound
from torchferry.deployer.prove.likeness import Feeds, Outputs
from torchferry.deployer.prove.reference import Generated, generated
from torchferry.errors import FerryError, RunError
from torchferry.runner import open_session, to_tensor
from torchferry.values.kinds import attempt

__all__ = ["RUNNERS", "Request", "Runner", "generate_there", "outputs_there"]

_NODE_SECONDS = 600


@dataclass(frozen=True)
class Request:
    """Greedy tokens that are wanted.

    Attributes:
        folder: of the deployment.
        kind: of the model.
        graph: which of its graphs.
        batches: prompts.
        steps: tokens to generate.
        pad: the token that fills up.
        start: tokens that the decoder of an encoder-decoder starts with.
    """

    folder: Path
    kind: Kind
    graph: Graph
    batches: Sequence[Prompt]
    steps: int
    pad: int
    start: Sequence[int] = ()


@dataclass(frozen=True)
class Runner:
    """A runtime.

    Attributes:
        installed: its version; empty where it is missing.
        generate: greedy tokens.
        outputs: of a graph of a model that generates nothing, for sets of inputs; ``None`` if the
            runtime has none.
        missing: how to get it.
    """

    installed: Callable[[], str]
    generate: Callable[[Request], Generated]
    outputs: Callable[[Path, Graph, Sequence[Feeds]], list[Outputs]] | None
    missing: str


def generate_there(name: str, request: Request) -> Generated:
    """Greedy tokens in a runtime.

    Raises:
        RunError: the runtime fails, with what it says.
    """
    result, error = attempt(RUNNERS[name].generate, request)
    if isinstance(error, FerryError):
        raise error
    if error is not None:
        _refuse(name, request.graph, error)
    tokens: Generated = result
    return tokens


def outputs_there(name: str, folder: Path, graph: Graph, feeds: Sequence[Feeds]) -> list[Outputs]:
    """Outputs of a graph in a runtime, by name, for each set of inputs.

    Raises:
        RunError: the runtime fails, with what it says.
    """
    run = RUNNERS[name].outputs
    if run is None:  # `check_runtimes` asked
        raise AssertionError
    result, error = attempt(run, folder, graph, feeds)
    if error is not None:
        _refuse(name, graph, error)
    outputs: list[Outputs] = result
    return outputs


def _refuse(name: str, graph: Graph, error: BaseException) -> NoReturn:
    """Raise what a runtime says of a graph that it does not run."""
    reason = f"{type(error).__name__}: {' '.join(str(error).split())[:400]}"
    raise RunError(f"{name} fails on {graph.path}: {reason}") from error


def _package(name: str) -> Callable[[], str]:
    def found() -> str:
        try:
            return version(name)
        except PackageNotFoundError:
            return ""

    return found


def _in_onnxruntime(request: Request) -> Generated:
    model = GENERATORS[request.kind](request.folder, request.folder / request.graph.path)
    return generated(model, request.batches, request.steps, request.pad)


def _outputs_in_onnxruntime(folder: Path, graph: Graph, feeds: Sequence[Feeds]) -> list[Outputs]:
    session = open_session(folder / graph.path)
    names = [value.name for value in session.get_outputs()]
    found: list[Outputs] = []
    for fed in feeds:
        kinds = {value.name: value.type for value in session.get_inputs()}
        values = {name: as_value(x, kinds[name]) for name, x in fed.items()}
        results = map(to_tensor, session.run_with_ort_values(names, values))
        found.append({n: x for n, x in zip(names, results, strict=True) if x is not None})
    return found


def _in_genai(request: Request) -> Generated:
    genai: Any = importlib.import_module("onnxruntime_genai")
    config = genai.Config(str(request.folder))
    files = genai_files(request.graph, request.folder).items()
    names = {name: {"filename": path.as_posix()} for name, path in files}
    config.overlay(json.dumps({"model": names}))
    model = genai.Model(config)
    tokens = []
    for batch in request.batches:
        if isinstance(batch, Batch):
            prompt, ids = batch.input_ids.tolist(), _filled_right(batch)
        elif isinstance(batch, Picture):
            prompt, ids = batch.input_ids.tolist(), batch.input_ids.numpy()
        else:
            prompt = [list(request.start)] * len(batch.input_features)
            ids = np.array(prompt)
        rows, length = ids.shape
        chosen = genai.GeneratorParams(model)
        longest = length + request.steps
        chosen.set_search_options(
            batch_size=rows, min_length=longest, max_length=longest, do_sample=False, num_beams=1
        )
        generator = genai.Generator(model, chosen)
        if isinstance(batch, Sound):
            features = _features(batch, request.graph)  # genai reads it later where it lies
            generator.set_model_input("input_features", features)
        if isinstance(batch, Picture):
            named = _named_images(genai, batch)  # as above
            generator.set_inputs(named)
        generator.append_tokens(ids.astype(np.int32))
        while not generator.is_done():
            generator.generate_next_token()
        new = [generator.get_sequence(row).tolist()[length:] for row in range(rows)]
        tokens.append([a + b for a, b in zip(prompt, new, strict=True)])
    return Generated(tokens, [])


def _named_images(genai: Any, picture: Picture) -> Any:
    """Images and the number of their tokens, as genai's processors give them."""
    named = genai.NamedTensors()
    for name, x in picture.images.items():
        named[name] = np.ascontiguousarray(x.numpy())
    named["num_image_tokens"] = np.array([int(picture.is_image.sum())], np.int64)
    return named


def _features(sound: Sound, graph: Graph) -> np.ndarray[Any, Any]:
    kind = np.float16 if graph.floats == "fp16" else np.float32
    return np.ascontiguousarray(sound.input_features.numpy().astype(kind))


def _filled_right(batch: Batch) -> np.ndarray[Any, Any]:
    """The prompts filled up on the right: genai reads padding on the left as text."""
    rows = []
    for ids, mask in zip(batch.input_ids.tolist(), batch.attention_mask.tolist(), strict=True):
        filled = mask.count(0)
        rows.append(ids[filled:] + ids[:filled])
    return np.array(rows)


def _in_optimum(request: Request) -> Generated:
    model = _load_in_optimum(request.folder, request.graph)
    tokens = generated(model, request.batches, request.steps, request.pad)
    return Generated(tokens.tokens, [])


def _load_in_optimum(folder: Path, graph: Graph) -> Any:
    optimum: Any = importlib.import_module("optimum.onnxruntime")
    settings = json.loads((folder / "config.json").read_text("utf-8"))
    model_class = getattr(optimum, task_of(settings["architectures"][0]).optimum)
    return model_class.from_pretrained(
        folder, subfolder=FOLDER, local_files_only=True, **optimum_names(graph)
    )


def _outputs_in_optimum(folder: Path, graph: Graph, feeds: Sequence[Feeds]) -> list[Outputs]:
    model = _load_in_optimum(folder, graph)
    return [{name: torch.as_tensor(x) for name, x in model(**fed).items()} for fed in feeds]


def _node(script: str, argument: str) -> str:
    """What a script of JavaScript prints, with the packages of the working directory.

    Raises:
        RunError: it fails.
    """
    node = shutil.which("node")
    if node is None:
        raise RunError("there is no node on the path")
    command = [node, "--input-type=module", "-e", script, argument]
    done = subprocess.run(  # noqa: S603  (our own script)
        command, capture_output=True, text=True, timeout=_NODE_SECONDS, check=False
    )
    if done.returncode:
        lines = [line.strip() for line in done.stderr.splitlines() if "Error: " in line]
        said = lines[0] if lines else done.stderr.strip()
        raise RunError(f"node fails: {said[:400]}")
    return done.stdout


def _transformers_js() -> str:
    """The version that node finds from the working directory."""
    script = "import { env } from '@huggingface/transformers'; console.log(env.version)"
    try:
        return _node(script, "").strip()
    except (RunError, OSError, subprocess.TimeoutExpired):
        return ""


def _in_transformers_js(request: Request) -> Generated:
    asked = {
        "dtype": request.graph.dtype,
        "steps": request.steps,
        "pad": request.pad,
        "kind": request.kind,
        "batches": [
            {name: _as_json(x) for name, x in batch.arguments.items()}
            for prompt in request.batches
            for batch in _rows(prompt)
        ],
    }
    tokens = iter(_run_script("generate.mjs", request.folder, asked))
    joined = [
        [row for _, batch in zip(_rows(prompt), tokens, strict=False) for row in batch]
        for prompt in request.batches
    ]
    return Generated(joined, [])


def _rows(prompt: Prompt) -> list[Prompt]:
    """Prompts as transformers.js takes them: recordings one by one."""
    if not isinstance(prompt, Sound):
        return [prompt]
    return [replace(prompt, input_features=row[None]) for row in prompt.input_features]


def _run_script(name: str, folder: Path, asked: dict[str, Any]) -> Any:
    """What a script of this room says of a deployed folder."""
    script = (files("torchferry.deployer") / name).read_text("utf-8")
    with tempfile.TemporaryDirectory(prefix="torchferry-") as place:
        # transformers.js reads no folder with a hidden name, as one that is being written has.
        (Path(place) / "model").symlink_to(folder.resolve(), target_is_directory=True)
        question = Path(place) / "question.json"  # images are longer than an argument may be
        question.write_text(json.dumps({"place": place, **asked}), "utf-8")
        _node(script, str(question))
        return json.loads((Path(place) / "answer.json").read_text("utf-8"))


def _outputs_in_transformers_js(
    folder: Path, graph: Graph, feeds: Sequence[Feeds]
) -> list[Outputs]:
    sets = [{name: _as_json(x) for name, x in fed.items()} for fed in feeds]
    answer = _run_script("outputs.mjs", folder, {"dtype": graph.dtype, "sets": sets})
    return [
        {name: torch.tensor(x["data"]).reshape(x["dims"]) for name, x in one.items()}
        for one in answer
    ]


def _as_json(x: torch.Tensor | str) -> dict[str, Any] | str:
    if isinstance(x, str):
        return x
    kind = str(x.dtype).removeprefix("torch.")
    return {"type": kind, "dims": list(x.shape), "data": x.flatten().tolist()}


RUNNERS = {
    "onnxruntime": Runner(
        _package("onnxruntime"), _in_onnxruntime, _outputs_in_onnxruntime,
        "pip install onnxruntime",
    ),
    "genai": Runner(
        _package("onnxruntime-genai"), _in_genai, None, "pip install onnxruntime-genai"
    ),
    "optimum": Runner(
        _package("optimum-onnx"), _in_optimum, _outputs_in_optimum,
        "pip install optimum-onnx (which needs transformers before 4.58)",
    ),
    "transformers.js": Runner(
        _transformers_js, _in_transformers_js, _outputs_in_transformers_js,
        "npm install @huggingface/transformers in the working directory",
    ),
}  # fmt: skip
