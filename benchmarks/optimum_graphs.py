"""How fast do graphs run that optimum wrote, optimized in each way?

The files are written in an environment of their own, as optimum needs other versions:
``python tests/optimizer/optimum/write.py FOLDER --hidden 512 --layers 4``. Each is optimized by
torchferry and by each peer, and runs on onnxruntime with all its own optimizations: a token with
a past of 64, or 128 tokens without one. Sessions are built in shuffled order and run in turn; CPU
time with one thread, medians, as speed-up over the file as it is. Writes optimum_graphs.json and
its section of RESULTS.md; exits 1 when a peer is faster by more than noise.

    python benchmarks/optimum_graphs.py FOLDER [--rounds 9] [--no-write]
"""

from __future__ import annotations

import argparse
import os
import random
import sys
import tempfile
from collections import Counter
from dataclasses import asdict, dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import onnx_ir as ir
import onnxruntime
from record import machine, markdown, save
from runtime import NOISE, timed
from runtime_ways import is_written, session

sys.path.append(str(Path(__file__).resolve().parents[1] / "tests" / "optimizer"))
from optimum_feeds import feeds_of

QUESTION = "How fast do graphs run that optimum wrote, optimized in each way?"
AS_IT_IS, OURS = "as it is", "ours"
PEERS = ("onnxslim", "onnxsim", "optimize_for_ort", "onnxruntime.transformers")
MADE = {AS_IT_IS: "torch.onnx", OURS: "ours, of torch.onnx's", **{name: name for name in PEERS}}
"""What each way is called among those of runtime.py."""

TOKEN = {"batch": 1, "new": 1, "past": 64, "encoder": 128}
PROMPT = {"batch": 1, "new": 128, "past": 0, "encoder": 128}
SIZES = {"bert_sdpa": PROMPT, "whisper_decoder": PROMPT}
KINDS = {"bert_sdpa": "bert", "gpt2_eager": "gpt2", "t5_decoder": "t5", "bart_merged": "bart"}
REPLICAS = 2
TOLERANCE = 1e-4  # of the largest value


@dataclass
class Line:
    """One way on one graph."""

    graph: str
    way: str
    ms: float
    speedup: float
    nodes: int
    attention: int  # nodes of attention
    difference: float  # from the graph as it is, of the largest value


def written(name: str, source: Path, folder: Path) -> dict[str, Path]:
    """A file for each way; why there is none is printed."""
    case: Any = SimpleNamespace(weights="", kind=KINDS.get(name, "gpt2"), heads=16, hidden=512)
    found = {}
    for number, (way, known) in enumerate(MADE.items()):
        path = folder / f"{number}.onnx"
        if is_written(known, case, source, path):
            found[way] = path
    return found


def measure(source: Path, rounds: int) -> list[Line]:
    name = source.stem
    with tempfile.TemporaryDirectory() as folder:
        files = written(name, source, Path(folder))
        feeds = feeds_of(session(source, 1), SIZES.get(name, TOKEN))
        want = session(source, 1).run(None, feeds)
        far, calls = {}, []
        todo = [way for way in files for _ in range(REPLICAS)]
        random.shuffle(todo)
        for way in todo:
            one = session(files[way], 1)
            far[way] = difference(want, one.run(None, feeds))
            calls.append((way, lambda one=one: one.run(None, feeds)))
        seconds = timed(calls, rounds, 1)
        counts = {
            way: Counter(node.op_type for node in ir.load(path).graph.all_nodes())
            for way, path in files.items()
        }
    return [
        Line(
            name, way, seconds[way] * 1e3, seconds[AS_IT_IS] / seconds[way],
            counts[way].total(), sum(n for op, n in counts[way].items() if "Attention" in op),
            far[way],
        )
        for way in files
    ]  # fmt: skip


def difference(want: list[Any], got: list[Any]) -> float:
    return max(
        float(np.abs(a - b).max() / np.abs(a).max())
        for a, b in zip(want, got, strict=True)
        if a.size
    )


def table(lines: list[Line]) -> str:
    rows = []
    for graph in dict.fromkeys(line.graph for line in lines):
        of = {line.way: line for line in lines if line.graph == graph}
        cells = [_cell(of.get(way)) for way in MADE]
        rows.append((graph, *cells, "pass" if ahead(list(of.values())) else "FAIL"))
    return markdown(("graph", *MADE, "no peer faster"), rows, right=range(1, len(MADE) + 1))


def _cell(line: Line | None) -> str:
    if line is None:
        return ""
    time = f"{line.ms:.2f} ms" if line.way == AS_IT_IS else f"{line.speedup:.2f}"
    wrong = " wrong" if line.difference > TOLERANCE else ""
    return f"{time} ({line.nodes}, {line.attention}){wrong}"


def ahead(lines: list[Line]) -> bool:
    """Whether no peer whose numbers are right is faster by more than noise."""
    right = [line.speedup for line in lines if line.difference <= TOLERANCE]
    (ours,) = (line.speedup for line in lines if line.way == OURS)
    return ours >= max(right) / NOISE


def main() -> int:
    parser = argparse.ArgumentParser(description=QUESTION)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--no-write", action="store_true", help="only print")
    given = parser.parse_args()
    lines: list[Line] = []
    for source in sorted(given.folder.glob("*.onnx")):
        new = measure(source, given.rounds)
        lines += new
        print(table(new).splitlines()[-1], flush=True)
    print(table(lines))
    if not given.no_write:
        where = f"{machine()}, onnxruntime {onnxruntime.__version__}"
        told = (
            f"{QUESTION} Speed-up over the file as optimum-onnx 0.1.0 wrote it, 4 layers of "
            "hidden size 512, all on onnxruntime with all its optimizations; in brackets the "
            "number of nodes, and of those of attention. "
            "`python benchmarks/optimum_graphs.py FOLDER`, one thread, "
            f"{REPLICAS} sessions of each, {given.rounds} rounds in turn, medians; {where}."
        )
        data = {"question": QUESTION, "machine": where, "results": [asdict(x) for x in lines]}
        save("optimum_graphs", data, f"{told}\n\n{table(lines)}")
    return 0 if all(
        ahead([line for line in lines if line.graph == graph])
        for graph in {line.graph for line in lines}
    ) else 1  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())
