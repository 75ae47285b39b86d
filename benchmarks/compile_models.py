"""Do models of all kinds run under torch.compile(backend="torchferry"), and equal eager?

Takes models of the zoo, each at three sizes or more, with random weights: every set of inputs is
given to the model itself and to the compiled one, in a process of its own. Tells the graphs that
dynamo captured, the sessions, the operators that ran in eager, and how often a graph was compiled
again for another size. Writes compile_models.json and its section of RESULTS.md beside this file;
exits 1 when a model differs or fails.

    python benchmarks/compile_models.py [--only llama,bert] [--limit 100] [--no-write]
    python benchmarks/compile_models.py rows.jsonl  # goes on where it was interrupted
"""

from __future__ import annotations

import argparse
import json
import logging
import multiprocessing
import os
import sys
import time
import warnings
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("HF_HUB_OFFLINE", "1")

import torch
import transformers
from record import machine, markdown, save

import torchferry as tf
from torchferry import zoo
from torchferry.compiler import onnx_custom_backend
from torchferry.observer import Observation
from torchferry.values import clone

QUESTION = 'Do models of all kinds run under torch.compile(backend="torchferry"), and equal eager?'
TOLERANCE = 1e-4  # of the largest value of the outputs, or of 1
MODELS = (
    # everyday modules
    "mlp", "lstm", "gru", "bilstm_tagger", "multihead_attention", "transformer_encoder", "convnet",
    "unet", "super_resolution", "tcn", "dlrm", "autoencoder",
    # decoders, with the cache that a run of the model itself filled
    "tiny-llm", "llama", "mistral", "qwen2", "qwen3", "gemma2", "gemma3", "phi3", "gpt2",
    "gpt_neox", "opt", "bloom", "falcon", "mixtral", "olmo2", "granite", "starcoder2",
    # encoders, and pairs of both
    "bert", "roberta", "distilbert", "electra", "deberta-v2", "albert", "modernbert", "t5", "bart",
    # images, sound, both with text
    "vit", "swin", "resnet", "convnext", "segformer", "dinov2", "detr", "clip", "siglip",
    "whisper", "wav2vec2", "hubert",
)  # fmt: skip
# Where dynamo itself does not come to an end with sizes that vary (over 15 minutes on the padding
# and the windows of an image, whatever the backend): a graph for each size.
STATIC = {"swin"}


@dataclass
class Row:
    """What became of a model."""

    model: str
    sets: int = 0
    graphs: int = 0
    sessions: int = 0
    breaks: int = 0
    recompiles: int = 0
    difference: float = 0.0
    eager: str = ""
    error: str = ""
    seconds: float = 0.0

    @property
    def passed(self) -> bool:
        """Whether it ran, and equals eager."""
        return not self.error and self.difference <= TOLERANCE


class Listener(logging.Handler):
    """Remembers what ran in eager."""

    def __init__(self) -> None:
        super().__init__()
        self.said: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        text = record.getMessage()
        if "runs in eager" in text:
            self.said.append(text.splitlines()[0][:160])


def size_of(value: Any) -> float:
    """The largest number in an output, at least 1."""
    leaves = [x for x in torch.utils._pytree.tree_leaves(value) if isinstance(x, torch.Tensor)]
    sizes = [float(x.abs().nan_to_num(0, 0, 0).max()) for x in leaves
             if x.numel() and x.is_floating_point()]  # fmt: skip
    return max([1.0, *sizes])


def three_sizes(found: Any) -> list[dict[str, Any]]:
    """The model's own sets of inputs, and larger ones until there are three."""
    sets = list(found.input_sets)
    seen = Observation.from_inputs(found.model, sets)
    largest = {n: max(seen.sizes_of(c).get(n, 1) for c in seen.calls) for n in seen.dynamic_names}
    while len(sets) < 3:
        largest = {name: size + 1 for name, size in largest.items()}
        sets.append(seen.inputs_at(largest)[1])
    return sets


def check(name: str) -> Row:
    """Run a model of the zoo, compiled and not, on all of its sets of inputs."""
    row, listener, start = Row(name), Listener(), time.process_time()
    logger = logging.getLogger("torchferry")
    logger.addHandler(listener)
    logger.setLevel(logging.INFO)
    logger.propagate = False
    storage: dict[str, Any] = {"instance": []}
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    torch._dynamo.utils.clear_compilation_metrics()

    def backend(module: Any, args: Sequence[Any]) -> Any:
        return onnx_custom_backend(module, args, storage=storage)

    found = zoo.build(name)
    run = torch.compile(found.model, backend=backend, dynamic=False if name in STATIC else None)
    # Dynamo leaves recurrent layers alone unless it is told not to.
    with torch.no_grad(), torch._dynamo.config.patch(allow_rnn=True):
        for given in three_sizes(found):
            expected = found.model(**clone(given))
            difference = tf.max_diff(expected, run(**clone(given)))
            row.difference = max(row.difference, float(difference["abs"]) / size_of(expected))
            row.sets += 1
    counters = torch._dynamo.utils.counters
    row.graphs = counters["stats"]["unique_graphs"]
    row.breaks = sum(counters["graph_break"].values())
    row.sessions = len(storage["instance"])
    metrics = torch._dynamo.utils.get_compilation_metrics()
    row.recompiles = sum(
        str(metric.compile_id).split("/")[-1] != "0" for metric in metrics if metric.compile_id
    )
    row.eager = "; ".join(dict.fromkeys(listener.said))
    row.seconds = time.process_time() - start
    return row


def alone(name: str, limit: float) -> Row:
    """The same in a process of its own, which may crash or hang."""
    here, there = multiprocessing.Pipe(duplex=False)
    process = multiprocessing.get_context("fork").Process(target=report, args=(name, there))
    process.start()
    there.close()
    try:
        row = here.recv() if here.poll(limit) else Row(name, error=f"takes over {limit:.0f} s")
    except EOFError:
        process.join()
        row = Row(name, error=f"ends with exit code {process.exitcode}")
    process.kill()
    process.join()
    return row


def report(name: str, pipe: Connection) -> None:
    """Check a model and send its row."""
    warnings.simplefilter("ignore")
    try:
        row = check(name)
    except Exception as error:  # noqa: BLE001  (whatever a model raises is its result)
        told = " ".join(f"{type(error).__name__}: {error}".split())
        row = Row(name, error=told[:300])
    pipe.send(row)


def table(rows: list[Row]) -> str:
    head = ("model", "sizes", "graphs", "breaks", "sessions", "recompiles", "difference",
            "verdict", "in eager")  # fmt: skip
    cells = [
        (row.model, str(row.sets), str(row.graphs), str(row.breaks), str(row.sessions),
         str(row.recompiles), f"{row.difference:.1e}", "equal" if row.passed
         else row.error or "DIFFERS", row.eager)
        for row in rows
    ]  # fmt: skip
    return markdown(head, cells, right=range(1, 7))


def read(file: Path | None) -> dict[str, Row]:
    """The rows of an earlier run, by model."""
    if file is None or not file.exists():
        return {}
    rows = [Row(**json.loads(line)) for line in file.read_text("utf-8").splitlines()]
    return {row.model: row for row in rows}


def main() -> int:
    parser = argparse.ArgumentParser(description=QUESTION)
    parser.add_argument("file", type=Path, nargs="?", help="rows in JSON, one a line, to go on")
    parser.add_argument("--only", default="", help="names of models, with commas")
    parser.add_argument("--limit", type=float, default=600, help="seconds for a model")
    parser.add_argument("--no-write", action="store_true", help="only print")
    given = parser.parse_args()
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    check("mlp")  # loads what the processes share
    done, rows = read(given.file), []
    for name in given.only.split(",") if given.only else MODELS:
        row = done.get(name) or alone(name, given.limit)
        rows.append(row)
        print(row, file=sys.stderr, flush=True)
        if given.file and name not in done:
            with given.file.open("a", encoding="utf-8") as lines:
                lines.write(json.dumps(asdict(row)) + "\n")
    print(table(rows))
    equal = sum(row.passed for row in rows)
    if not given.no_write and not given.only:
        data = [asdict(row) | {"passed": row.passed} for row in rows]
        told = f"{equal} of {len(rows)} do, each at {min(row.sets for row in rows)} sizes or more."
        told += " `python benchmarks/compile_models.py`; differences are parts of the largest"
        told += f" output; {machine()}, torch {torch.__version__}."
        save("compile_models", {"question": QUESTION, "results": data},
             f"{QUESTION} {told}\n\n{table(rows)}")  # fmt: skip
    return 0 if equal == len(rows) else 1


if __name__ == "__main__":
    sys.exit(main())
