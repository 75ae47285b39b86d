"""What memory and time does it take to run two models side by side?

A Llama of about 1 GiB of float32 with random weights is compared, value by value, with its ONNX
model: as a program beside the model in memory, which shares the weights; as a program and as
modules in eager mode beside the file; and out of a dump, without the model. Memory is what the
process has at most, looked at every 5 ms, beyond what it had before the model was built, so that
the weights of PyTorch are in it. The bar holds for memory that is no copy of a file; all that is
resident, with pages of mapped files that the system takes back when it needs them, stands beside
it. Each measure is a process of its own. Writes compare.json and its section of RESULTS.md beside
this file; exits 1 when a bar is missed.

    python benchmarks/compare.py [--no-write] [--layers 9]
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from record import machine, markdown, save

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("HF_HUB_OFFLINE", "1")

QUESTION = "What memory and time does it take to run two models side by side?"
GIB = 2**30
SIZES = ("VmRSS", "RssAnon")
BAR = 1.5  # times the size of the model
WAYS = {
    "shared": "a program, the ONNX model in memory",
    "program": "a program, the ONNX model in a file",
    "eager": "modules in eager mode, the ONNX model in a file",
    "dump": "a dump, the ONNX model in a file",
}


@dataclass(frozen=True)
class Line:
    """One way: bytes of weights, peaks beyond the empty process, values compared, seconds."""

    way: str
    weights: int
    resident: int
    memory: int
    values: int
    forward: float
    seconds: float

    @property
    def times(self) -> float:
        """The memory as a multiple of the weights."""
        return self.memory / self.weights


def main() -> int:
    parser = argparse.ArgumentParser(description=QUESTION)
    parser.add_argument("--layers", type=int, default=9)
    parser.add_argument("--no-write", action="store_true")
    parser.add_argument("--child", nargs=2, metavar=("WAY", "FOLDER"))
    options = parser.parse_args()
    if options.child:
        way, folder = options.child
        print(json.dumps(asdict(measured(way, Path(folder), options.layers))))
        return 0
    lines = list(measures(options.layers))
    shown = table(lines)
    print(shown)
    if not options.no_write:
        told = f"{QUESTION} A Llama of {options.layers} layers, {lines[0].weights / GIB:.2f} GiB, "
        told += f"1 x 32 tokens. `python benchmarks/compare.py`; {machine()}."
        data = {"question": QUESTION, "machine": machine(), "lines": [asdict(x) for x in lines]}
        save("compare", data, f"{told}\n\n{shown}")
    return 0 if all(line.times <= BAR for line in lines) else 1


def measures(layers: int) -> Iterator[Line]:
    with tempfile.TemporaryDirectory(prefix="torchferry-compare-") as folder:
        for way in WAYS:
            command = [sys.executable, __file__, "--child", way, folder, "--layers", str(layers)]
            told = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout
            yield Line(**json.loads(told.splitlines()[-1]))


def measured(way: str, folder: Path, layers: int) -> Line:
    """Build, convert, and compare in one way; the first also writes what the others read."""
    import torch

    small = built(1, 64)
    run(way, *converted(*small), folder / f"small-{way}")  # what is loaded at first use
    before = resident()
    model, ids = built(layers, 1536)
    weights = sum(p.numel() * p.element_size() for p in model.parameters())
    started = time.perf_counter()
    with torch.no_grad():
        model(input_ids=ids)
    forward = time.perf_counter() - started
    reference = converted(model, ids)
    with prepared(way, *reference, folder) as (compare, kept):
        if not kept:
            del model, reference
        gc.collect()
        with watching() as most:
            started = time.perf_counter()
            found = compare()
            seconds = time.perf_counter() - started
    if not found.ok:
        raise SystemExit(str(found))
    peaks = [most[name] - before[name] for name in SIZES]
    return Line(way, weights, *peaks, len(found.rows), forward, seconds)


def built(layers: int, width: int) -> tuple[Any, Any]:
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    config = LlamaConfig(
        hidden_size=width, intermediate_size=4096, num_hidden_layers=layers,
        num_attention_heads=width // 32, vocab_size=1024, use_cache=False,
    )  # fmt: skip
    return LlamaForCausalLM(config).eval(), torch.randint(0, 1024, (1, 32))


def converted(model: Any, ids: Any) -> tuple[Any, Any, Any]:
    import torchferry

    return model, ids, torchferry.to_onnx(model, (), {"input_ids": ids})


def run(way: str, model: Any, ids: Any, program: Any, folder: Path) -> None:
    with prepared(way, model, ids, program, folder) as (compare, _):
        compare()


@contextmanager
def prepared(
    way: str, model: Any, ids: Any, program: Any, folder: Path
) -> Iterator[tuple[Callable[[], Any], bool]]:
    """What compares, and whether it needs the model in memory."""
    import torch

    import torchferry

    folder.mkdir(exist_ok=True)
    path, calls = folder / "model.onnx", folder / "calls"
    inputs = ((), {"input_ids": ids})
    if way != "shared" and not path.exists():
        program.save(path)
    if way == "dump":
        with (
            torchferry.steal_forward(model, None, calls, submodules=True, storage_limit=GIB),
            torch.no_grad(),
        ):
            model(input_ids=ids)
    ways: dict[str, Callable[[], Any]] = {
        "shared": lambda: torchferry.compare(program.program, program.model, inputs),
        "program": lambda: torchferry.compare(program.program, path, inputs),
        "eager": lambda: torchferry.compare(model, path, inputs, against="eager"),
        "dump": lambda: torchferry.compare(calls, path),
    }
    yield ways[way], way != "dump"


def resident() -> dict[str, int]:
    """What of this process is in memory, and what of that is no copy of a file; bytes."""
    lines = Path("/proc/self/status").read_text("ascii").splitlines()
    found = dict(line.split(":", 1) for line in lines)
    return {name: 1024 * int(found[name].split()[0]) for name in SIZES}


@contextmanager
def watching() -> Iterator[dict[str, int]]:
    """The most of each within the block."""
    most, done = resident(), threading.Event()

    def look() -> None:
        while not done.wait(0.005):
            for name, size in resident().items():
                most[name] = max(most[name], size)

    thread = threading.Thread(target=look)
    thread.start()
    try:
        yield most
    finally:
        done.set()
        thread.join()


def table(lines: list[Line]) -> str:
    head = (
        "what", "values", "memory", "of the weights", "with files", "forward", "compare", "bar"
    )  # fmt: skip
    rows = [
        (
            WAYS[x.way],
            str(x.values),
            f"{x.memory / GIB:.2f} GiB",
            f"{x.times:.2f} x",
            f"{x.resident / x.weights:.2f} x",
            f"{x.forward:.1f} s",
            f"{x.seconds:.1f} s",
            f"{'pass' if x.times <= BAR else 'FAIL'}: ≤ {BAR} x",
        )
        for x in lines
    ]
    return markdown(head, rows, right=(1, 2, 3, 4, 5, 6))


if __name__ == "__main__":
    sys.exit(main())
