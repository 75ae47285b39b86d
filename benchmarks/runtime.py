"""How fast do rewritten models run on onnxruntime, beside eager, inductor and other optimizers?

Each model is exported by torch.onnx and by torchferry, with dynamic sizes, and optimized in each
way; every way gets several sessions, built in shuffled order, because equal sessions differ by
where their weights lie. All run in turn in each round, in random order; CPU time with one thread,
wall time with more; medians of the rounds, then of the sessions, as speed-up over eager. What
computes something else than eager is told, and where a bar is missed, how much of the time goes
into matrix products and convolutions, which no rewrite makes faster. A peer that is not installed,
or fails, is left out with a line. Writes runtime.json and its section of RESULTS.md, where other
models keep their rows; exits 1 when a bar is missed.

    python benchmarks/runtime.py [--only decode] [--threads 1] [--rounds 9] [--ways ours onnxslim]
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
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import onnx
import onnx_ir as ir
import onnxruntime
import torch
from record import machine, markdown, save
from runtime_models import CASES, Case

import torchferry as tf
from torchferry.graph import io

QUESTION = "How fast do rewritten models run on onnxruntime?"
PATTERNS = "default+onnxruntime"
WINDOW = 0.04  # seconds that a session is called for in each round, or one call
NOISE = 1.1  # a peer is faster when it is by more than this
TOLERANCE = 1e-3  # of the largest value, beyond which the numbers are others
PRODUCTS = ("MatMul", "Gemm", "Conv", "FusedConv", "FusedGemm", "FusedMatMul")
OURS = "ours"


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
    share: float = 0.0  # of the time, in matrix products and convolutions
    rounds: int = 0

    @property
    def passed(self) -> bool:
        """Whether no peer is faster by more than noise, and what is asked for is reached."""
        return self.speedup >= max(self.asked, self.peer / NOISE)


# How models are made -----------------------------------------------------------------------------


def dims_of(shapes: Any, known: dict[str, Any] | None = None) -> Any:
    """Names of dimensions as ``torch.export.Dim``, so that equal ones are one."""
    known = {} if known is None else known
    if isinstance(shapes, str):
        name, _, more = shapes.partition("+")
        dim = known.setdefault(name, torch.export.Dim(name))
        return dim + int(more) if more else dim
    if isinstance(shapes, dict):
        return {key: dims_of(item, known) for key, item in shapes.items()}
    return [dims_of(item, known) for item in shapes]


def by_torch(case: Case, path: Path, *, optimize: bool = True) -> None:
    """torch.onnx's export."""
    program = torch.onnx.export(
        case.module, (), kwargs=case.kwargs, dynamic_shapes=dims_of(case.shapes),
        dynamo=True, verbose=False, optimize=optimize,
    )  # fmt: skip
    assert program is not None
    program.save(path)


def ours(case: Case, _: Path, to: Path) -> None:
    model = tf.to_onnx(case.module, (), case.kwargs, dynamic_shapes=case.shapes).model
    io.save(tf.optimize(model, PATTERNS), to)


def ours_of_torch(_: Case, source: Path, to: Path) -> None:
    io.save(tf.optimize(source, PATTERNS), to)


def as_it_is(_: Case, source: Path, to: Path) -> None:
    onnx.save(onnx.load(source), to)


def by_onnxslim(_: Case, source: Path, to: Path) -> None:
    import onnxslim

    onnx.save(onnxslim.slim(onnx.load(source)), to)


def by_onnxsim(_: Case, source: Path, to: Path) -> None:
    import onnxsim

    onnx.save(onnxsim.simplify(onnx.load(source))[0], to)


def by_onnxscript(_: Case, source: Path, to: Path) -> None:
    from onnxscript import optimizer
    from onnxscript.rewriter.ort_fusions import optimize_for_ort

    model = ir.load(source)
    optimizer.optimize_ir(model)
    optimize_for_ort(model)
    ir.save(model, to)


def by_onnxruntime(case: Case, source: Path, to: Path) -> None:
    from onnxruntime.transformers import optimizer

    if not case.kind:
        raise LookupError("onnxruntime.transformers has no such architecture")
    found = optimizer.optimize_model(
        str(source), model_type=case.kind, num_heads=case.heads, hidden_size=case.hidden,
        opt_level=0, use_gpu=False,
    )  # fmt: skip
    found.save_model_to_file(str(to))


WAYS: dict[str, Callable[[Case, Path, Path], None]] = {
    OURS: ours,
    "ours, of torch.onnx's": ours_of_torch,
    "torch.onnx": as_it_is,
    "onnxslim": by_onnxslim,
    "onnxsim": by_onnxsim,
    "optimize_for_ort": by_onnxscript,
    "onnxruntime.transformers": by_onnxruntime,
}
_MODULES = {"onnxslim": "onnxslim", "onnxsim": "onnxsim"}


def session(path: Path, threads: int) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = threads
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL
    return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


# Measuring ---------------------------------------------------------------------------------------


def made(case: Case, folder: Path, ways: list[str]) -> dict[str, Path]:
    """A file for each way; why there is none is printed."""
    source = folder / "torch.onnx"
    by_torch(case, source)
    found = {}
    for number, way in enumerate(ways):
        if way not in WAYS:
            continue
        if way in _MODULES and importlib.util.find_spec(_MODULES[way]) is None:
            print(f"# {way} is left out: it is not installed", flush=True)
            continue
        path = folder / f"{number}.onnx"
        try:
            WAYS[way](case, source, path)
            session(path, 1)
        except Exception as error:  # peers raise anything: that is their result
            if way.startswith(OURS):
                raise
            first = (str(error).strip().splitlines() or [type(error).__name__])[0]
            print(f"# {way} is left out: {first[:150]}", flush=True)
        else:
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
    seconds = timed(calls, given.rounds, given.threads)
    nodes = {way: sum(1 for _ in ir.load(path).graph.all_nodes()) for way, path in files.items()}
    peers = [
        seconds["eager"] / value
        for way, value in seconds.items()
        if not way.startswith(OURS) and far[way] <= TOLERANCE
    ]
    share = products(files[OURS], case) if OURS in files else 0.0
    order = ["eager", "inductor", *WAYS]
    return [
        Line(
            name, way, value * 1e3, seconds["eager"] / value, nodes.get(way, 0), far[way],
            *((case.bar, max(peers), share) if way == OURS else (0.0,) * 3), given.rounds,
        )
        for way, value in sorted(seconds.items(), key=lambda item: order.index(item[0]))
    ]  # fmt: skip


def products(path: Path, case: Case) -> float:
    """The share of the time that goes into matrix products and convolutions."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.enable_profiling = True
    options.profile_file_prefix = str(path.with_name("profile"))
    one = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    for _ in range(5):
        one.run(None, case.feeds([item.name for item in one.get_inputs()]))
    events = json.loads(Path(one.end_profiling()).read_text("utf-8"))
    spent: dict[str, float] = {}
    for event in events:
        if event.get("cat") == "Node" and event["name"].endswith("kernel_time"):
            name = event["args"]["op_name"]
            spent[name] = spent.get(name, 0.0) + event["dur"]
    return sum(spent.get(name, 0.0) for name in PRODUCTS) / sum(spent.values())


# Telling -----------------------------------------------------------------------------------------


def table(lines: list[Line]) -> str:
    """A row a model, a column a way."""
    present = {line.way for line in lines}
    ways = [way for way in ("eager", "inductor", *WAYS) if way in present]
    rows = []
    for case in dict.fromkeys(line.case for line in lines):
        of = {line.way: line for line in lines if line.case == case}
        cells = [_cell(of.get(way)) for way in ways]
        rows.append((case, *cells, _verdict(of.get(OURS))))
    return markdown(("model", *ways, "bar of ours"), rows, right=range(1, len(ways) + 1))


def _verdict(line: Line | None) -> str:
    if line is None:
        return ""
    ahead = "pass" if line.speedup >= line.peer / NOISE else "FAIL"
    told = f"{ahead}: ≥ {line.peer / NOISE:.2f}, no peer faster"
    if line.speedup >= line.asked:
        return f"{told}; ≥ {line.asked:.1f}"
    return f"{told}; MISSED: ≥ {line.asked:.1f}, products alone take {line.share:.0%} of the time"


def _cell(line: Line | None) -> str:
    if line is None:
        return ""
    if line.way == "eager":
        return f"{line.ms:.2f} ms"
    wrong = " wrong" if line.difference > TOLERANCE else ""
    return f"{line.speedup:.2f}" + (f" ({line.nodes})" if line.nodes else "") + wrong


def write(new: list[Line], given: argparse.Namespace) -> None:
    """The JSON and the section; models that were not measured now keep their rows."""
    name = "runtime" if given.threads == 1 else f"runtime_{given.threads}_threads"
    file = Path(__file__).with_name(f"{name}.json")
    old = json.loads(file.read_text("utf-8"))["results"] if file.exists() else []
    measured = {line.case for line in new}
    kept = [Line(**row) for row in old if row["case"] not in measured]
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
        f" float32, {given.threads} thread(s), {given.replicas} sessions of each, "
        f"{' or '.join(map(str, rounds))} rounds in turn, medians; {where}.\n\n{table(lines)}"
    )
    save(name, data, told)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--replicas", type=int, default=2, help="sessions of each way")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--only", default="", help="a part of the models' names")
    parser.add_argument("--ways", nargs="+", default=["inductor", *WAYS])
    parser.add_argument("--keep", default="", help="a folder to copy the models to")
    parser.add_argument("--no-write", action="store_true", help="only print")
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    torch.set_num_threads(given.threads)
    if not shutil.which("g++"):
        print("# inductor is left out: there is no C++ compiler")
        given.ways = [way for way in given.ways if way != "inductor"]
    lines: list[Line] = []
    with torch.no_grad():
        for name, build in CASES.items():
            if given.only not in name:
                continue
            torch.manual_seed(0)
            torch._dynamo.reset()
            with tempfile.TemporaryDirectory() as folder:
                new = measure(name, build(), given, Path(folder))
            lines += new
            print(table(new).splitlines()[-1], flush=True)
    print(table(lines))
    if not given.no_write:
        write(lines, given)
    return 0 if all(line.passed for line in lines) else 1


if __name__ == "__main__":
    sys.exit(main())
