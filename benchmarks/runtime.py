"""How fast do rewritten models run on onnxruntime, beside eager, inductor and other optimizers?

Each model is exported by torch.onnx and by torchferry, with dynamic sizes, and optimized in each
way; every way gets several sessions, built in shuffled order, because equal sessions differ by
where their weights lie. All run in turn in each round, in random order; CPU time with one thread,
wall time with more; medians of the rounds, then of the sessions, as speed-up over eager. What
computes something else than eager is told. Beside them runs a model of nothing but the matrix
products and convolutions: its speed-up is the most that any rewrite could reach. A peer that is
not installed, or fails, is left out with a line. Writes runtime.json and its section of RESULTS.md
after each model, where other models keep their rows; exits 1 when a bar is missed.

    python benchmarks/runtime.py [--only decode] [--threads 1] [--rounds 9] [--ways ours onnxslim]
        [--missing]
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import logging
import os
import random
import shutil
import statistics
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import onnx
import onnx_ir as ir
import onnxruntime
import torch
from onnxruntime.capi import onnxruntime_pybind11_state as state
from record import machine, markdown, save
from runtime_models import CASES, Case
from runtime_products import write_products
from runtime_ways import MODULES, OURS, WAYS, by_torch, is_written, session, unfused

QUESTION = "How fast do rewritten models run on onnxruntime?"
WINDOW = 0.04  # seconds that a session is called for in each round, or one call
NOISE = 1.1  # a peer is faster when it is by more than this
ALONE = "products alone"
TOLD = (
    "Products alone: the speed-up of a model of nothing but the matrix products and convolutions, "
    "the most that rewrites of the graph can reach as long as the kernels of these stay. "
    "With int8 and int4, eager is in float32."
)


@dataclass
class Line:
    """One way on one model."""

    case: str
    way: str
    ms: float
    speedup: float
    nodes: int
    difference: float  # from eager, of the largest value
    asked: float = 0.0  # the speed-up that is asked for, of ours
    peer: float = 0.0  # the fastest peer's
    ceiling: float = 0.0  # the speed-up of the products alone
    wrong: bool = False  # it is further from eager than the case allows
    rounds: int = 0

    @property
    def passed(self) -> bool:
        """Whether no peer is faster by more than noise, and what is asked for is reached."""
        return self.speedup >= max(self.asked, self.peer / NOISE)


# Measuring ---------------------------------------------------------------------------------------


def made(case: Case, folder: Path, ways: list[str]) -> dict[str, Path]:
    """A file for each way; why there is none is printed."""
    source = folder / "torch.onnx"
    by_torch(case, source)
    found = {}
    for number, way in enumerate(ways):
        if way not in WAYS:
            continue
        if way in MODULES and importlib.util.find_spec(MODULES[way]) is None:
            print(f"# {way} is left out: it is not installed", flush=True)
            continue
        path = folder / f"{number}.onnx"
        if is_written(way, case, source, path):
            found[way] = path
    return found


def difference(want: Any, got: list[Any]) -> float:
    """The largest difference, of the largest value, over all outputs."""
    wanted = [want] if isinstance(want, torch.Tensor) else list(want)
    return max(
        float((a - torch.as_tensor(b)).abs().max() / a.abs().max())
        for a, b in zip(wanted, got, strict=True)
    )


def calls_of(
    case: Case, files: dict[str, Path], ways: list[str], replicas: int, threads: int
) -> tuple[list[tuple[str, Callable[[], Any]]], dict[str, float]]:
    """What is called, in shuffled order of making, and how far each way is from eager."""
    want = case.module(**case.kwargs)
    calls: list[tuple[str, Callable[[], Any]]] = []
    far: dict[str, float] = {"eager": 0.0}
    calls += [("eager", lambda: case.module(**case.kwargs))] * replicas
    if "inductor" in ways:
        compiled = torch.compile(case.module, dynamic=False)
        far["inductor"] = difference(want, _listed(compiled(**case.kwargs)))
        calls += [("inductor", lambda: compiled(**case.kwargs))] * replicas
    todo = [way for way in files for _ in range(replicas)]
    random.shuffle(todo)
    for way in todo:
        one = session(files[way], threads)
        feeds = case.feeds([item.name for item in one.get_inputs()])
        far[way] = difference(want, one.run(None, feeds))
        calls.append((way, lambda one=one, feeds=feeds: one.run(None, feeds)))
    return calls, far


def alone(case: Case, folder: Path, given: argparse.Namespace) -> list[tuple[str, Any]]:
    """Calls of the products alone; with quantized weights they are others, and there are none."""
    if case.weights:
        return []
    source, path = folder / "unfused.onnx", folder / "products.onnx"
    unfused(case, source)
    names = [item.name for item in session(source, 1).get_inputs()]
    feeds = write_products(source, case.feeds(names), path)
    sessions = [session(path, given.threads) for _ in range(given.replicas)]
    return [(ALONE, lambda one=one: one.run(None, feeds)) for one in sessions]


def _listed(value: Any) -> list[Any]:
    return [value] if isinstance(value, torch.Tensor) else list(value)


def timed(
    calls: list[tuple[str, Callable[[], Any]]], rounds: int, threads: int
) -> dict[str, float]:
    """Seconds of a call by way: of each session the median, then the median of the sessions."""
    clock = time.process_time if threads == 1 else time.perf_counter
    repeats, spent = [], [[0.0][:0] for _ in calls]
    for _, call in calls:
        call()
        start = time.perf_counter()
        call()
        repeats.append(max(1, round(WINDOW / (time.perf_counter() - start))))
    order = list(range(len(calls)))
    for _ in range(rounds):
        random.shuffle(order)
        for index in order:
            call = calls[index][1]
            call()  # what ran before has emptied the caches
            start = clock()
            for _ in range(repeats[index]):
                call()
            spent[index].append((clock() - start) / repeats[index])
    each: dict[str, list[float]] = {}
    for (way, _), values in zip(calls, spent, strict=True):
        each.setdefault(way, []).append(statistics.median(values))
    return {way: statistics.median(values) for way, values in each.items()}


def measure(name: str, case: Case, given: argparse.Namespace, folder: Path) -> list[Line]:
    files = made(case, folder, given.ways)
    if given.keep:
        shutil.copytree(folder, Path(given.keep) / name.replace(", ", "-").replace(" ", "_"),
                        dirs_exist_ok=True)  # fmt: skip
    calls, far = calls_of(case, files, given.ways, given.replicas, given.threads)
    seconds = timed([*calls, *alone(case, folder, given)], given.rounds, given.threads)
    most = seconds["eager"] / seconds.pop(ALONE, float("inf"))
    nodes = {way: sum(1 for _ in ir.load(path).graph.all_nodes()) for way, path in files.items()}
    peers = [
        seconds["eager"] / value
        for way, value in seconds.items()
        if not way.startswith(OURS) and far[way] <= case.tolerance
    ]
    order = ["eager", "inductor", *WAYS]
    return [
        Line(
            name, way, value * 1e3, seconds["eager"] / value, nodes.get(way, 0), far[way],
            *((case.bar, max(peers), most) if way == OURS else (0.0,) * 3),
            wrong=far[way] > case.tolerance, rounds=given.rounds,
        )
        for way, value in sorted(seconds.items(), key=lambda item: order.index(item[0]))
    ]  # fmt: skip


# Telling -----------------------------------------------------------------------------------------


def table(lines: list[Line]) -> str:
    """A row a model, a column a way."""
    present = {line.way for line in lines}
    ways = [way for way in ("eager", "inductor", *WAYS) if way in present]
    rows = []
    for case in dict.fromkeys(line.case for line in lines):
        of = {line.way: line for line in lines if line.case == case}
        cells = [_cell(of.get(way)) for way in ways]
        most = of[OURS].ceiling if OURS in of else 0.0
        rows.append((case, *cells, f"{most:.2f}" if most else "", _verdict(of.get(OURS))))
    head = ("model", *ways, ALONE, "bar of ours")
    return markdown(head, rows, right=range(1, len(ways) + 2))


def _verdict(line: Line | None) -> str:
    if line is None:
        return ""
    ahead = "pass" if line.speedup >= line.peer / NOISE else "FAIL"
    told = f"{ahead}: ≥ {line.peer / NOISE:.2f}, no peer faster"
    if line.speedup >= line.asked:
        return f"{told}; ≥ {line.asked:.1f}"
    reach = " out of reach" if 0 < line.ceiling < line.asked else ""
    return f"{told}; MISSED: ≥ {line.asked:.1f}{reach}"


def _cell(line: Line | None) -> str:
    if line is None:
        return ""
    if line.way == "eager":
        return f"{line.ms:.2f} ms"
    wrong = " wrong" if line.wrong else ""
    return f"{line.speedup:.2f}" + (f" ({line.nodes})" if line.nodes else "") + wrong


def lacking() -> str:
    """A sentence on the types that onnxruntime's CPU provider multiplies no matrices of."""
    matrix = [
        onnx.helper.make_tensor_value_info(n, onnx.TensorProto.BFLOAT16, [2, 2]) for n in "xyz"
    ]
    node = onnx.helper.make_node("MatMul", ["x", "y"], ["z"])
    graph = onnx.helper.make_graph([node], "g", matrix[:2], matrix[2:])
    opset = onnx.helper.make_opsetid("", 20)
    model = onnx.helper.make_model(graph, opset_imports=[opset], ir_version=10)
    try:
        onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    except state.NotImplemented:
        return " There is no row in bfloat16: onnxruntime's CPU provider has no MatMul for it."
    return ""


def stem(threads: int) -> str:
    return "runtime" if threads == 1 else f"runtime_{threads}_threads"


def stored(threads: int) -> list[dict[str, Any]]:
    """The rows that were measured before."""
    file = Path(__file__).with_name(f"{stem(threads)}.json")
    return json.loads(file.read_text("utf-8"))["results"] if file.exists() else []


def write(new: list[Line], given: argparse.Namespace) -> None:
    """The JSON and the section; models that were not measured now keep their rows."""
    old = stored(given.threads)
    measured = {line.case for line in new}
    names = {item.name for item in fields(Line)}
    kept = [
        Line(**{key: value for key, value in row.items() if key in names})
        for row in old
        if row["case"] not in measured
    ]
    lines = sorted([*kept, *new], key=lambda line: list(CASES).index(line.case))
    where = f"{machine()}, torch {torch.__version__}, onnxruntime {onnxruntime.__version__}"
    data = {
        "question": QUESTION, "machine": where, "replicas": given.replicas,
        "threads": given.threads,
        "results": [asdict(line) for line in lines],
    }  # fmt: skip
    rounds = sorted({line.rounds for line in lines})
    told = (
        f"{QUESTION} Speed-up over eager, and the number of nodes. `python benchmarks/runtime.py`,"
        f" {given.threads} thread(s), {given.replicas} sessions of each, "
        f"{' or '.join(map(str, rounds))} rounds in turn, medians; {where}. "
        f"{TOLD}{lacking()}\n\n{table(lines)}"
    )
    save(stem(given.threads), data, told)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--replicas", type=int, default=2, help="sessions of each way")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--only", default="", help="a model, or a part of their names")
    parser.add_argument("--ways", nargs="+", default=["inductor", *WAYS])
    parser.add_argument("--keep", default="", help="a folder to copy the models to")
    parser.add_argument("--missing", action="store_true", help="leave out what has a row already")
    parser.add_argument("--no-write", action="store_true", help="only print")
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    torch.set_num_threads(given.threads)
    if not shutil.which("g++"):
        print("# inductor is left out: there is no C++ compiler")
        given.ways = [way for way in given.ways if way != "inductor"]
    lines: list[Line] = []
    done = {row["case"] for row in stored(given.threads)} if given.missing else set()
    with torch.no_grad():
        for name, build in CASES.items():
            if (
                given.only not in name
                or name in done
                or (given.only in CASES and name != given.only)
            ):
                continue
            torch.manual_seed(0)
            torch._dynamo.reset()
            with tempfile.TemporaryDirectory() as folder:
                new = measure(name, build(), given, Path(folder))
            lines += new
            print(table(new).splitlines()[-1], flush=True)
            if not given.no_write:
                write(new, given)
    print(table(lines))
    return 0 if all(line.passed for line in lines) else 1


if __name__ == "__main__":
    sys.exit(main())
