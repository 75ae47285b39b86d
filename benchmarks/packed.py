"""What becomes of packed weights: bytes, time and numbers, beside torch.onnx.

Four linear layers of 1024 x 1024 whose weights are floats, int8 with a scale a row, int4 with a
scale for 32 numbers (a byte each, and two in a byte), and what torchao makes of them if it is
installed. Each is exported for both targets, and by torch.onnx.export(dynamo=True); all files of
one model are run in turn, one thread. Writes packed.json and its section of RESULTS.md; exits 1
when a bar is missed: a weight that grew, a number that is off, a file or a call that is larger or
slower than torch.onnx's.

    python benchmarks/packed.py [MODEL ...] [--rounds 40] [--no-write]
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import onnxruntime
import torch
from record import machine, markdown, save
from torch import nn
from torch.nn.functional import linear

import torchferry as tf

WIDTH, LAYERS, GROUP = 1024, 4, 32
BATCHES = (1, 32)
ERROR = 1e-4  # of the largest number
SLOWER = 1.25  # times torch.onnx's call, which a busy machine cannot tell apart


@dataclass
class Line:
    """One file of one model.

    Attributes:
        model: what its weights are.
        by: who exported it.
        size: of its files, in bytes.
        grown: its bytes, as times those of the weights as PyTorch holds them.
        error: the largest difference from PyTorch, as a part of the largest number.
        milliseconds: the fastest call, by batch, as other processes slow down single ones.
        said: why there is no file.
    """

    model: str
    by: str
    size: int = 0
    grown: float = 0.0
    error: float = 0.0
    milliseconds: dict[int, float] = field(default_factory=dict)
    said: str = ""


# Models ----------------------------------------------------------------------------------------


class Bytes(nn.Module):
    """A linear layer of int8, scaled row by row after the product."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("codes", torch.randint(-127, 128, (WIDTH, WIDTH), dtype=torch.int8))
        self.register_buffer("scale", torch.rand(WIDTH) * 4e-4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return linear(x, self.codes.to(x.dtype)) * self.scale


class Nibbles(nn.Module):
    """A linear layer of int4, a scale for each group of a row; two in a byte if ``paired``."""

    def __init__(self, paired: bool) -> None:
        super().__init__()
        codes = torch.randint(-8, 8, (WIDTH, WIDTH), dtype=torch.int8)
        if paired:
            halves = (codes + 8).to(torch.uint8)
            codes = halves[:, ::2] | halves[:, 1::2] << 4
        self.register_buffer("codes", codes)
        self.register_buffer("scale", torch.rand(WIDTH, WIDTH // GROUP, 1) * 8e-3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        codes = self.codes
        if codes.dtype is torch.uint8:
            codes = torch.stack([codes & 15, codes >> 4], -1).to(torch.int8) - 8
        groups = codes.reshape(WIDTH, WIDTH // GROUP, GROUP).to(x.dtype)
        return linear(x, (groups * self.scale).reshape(WIDTH, WIDTH))


def layers(make: Callable[[], nn.Module]) -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(*(make() for _ in range(LAYERS))).eval()


def floats() -> nn.Module:
    return layers(lambda: nn.Linear(WIDTH, WIDTH))


def quantized(config: str, **settings: Any) -> nn.Module:
    from torchao import quantization

    if "granularity" in settings:
        settings["granularity"] = quantization.PerGroup(settings["granularity"])
    model = floats()
    quantization.quantize_(model, getattr(quantization, config)(**settings))
    return model


MODELS: dict[str, Callable[[], nn.Module]] = {
    "float32": floats,
    "int8": lambda: layers(Bytes),
    "int4, one in a byte": lambda: layers(lambda: Nibbles(False)),
    "int4, two in a byte": lambda: layers(lambda: Nibbles(True)),
}
TORCHAO: dict[str, Callable[[], nn.Module]] = {
    "torchao int8": lambda: quantized("Int8WeightOnlyConfig"),
    "torchao int8, dynamic": lambda: quantized("Int8DynamicActivationInt8WeightConfig"),
    "torchao int4": lambda: quantized(
        "IntxWeightOnlyConfig", weight_dtype=torch.int4, granularity=GROUP
    ),
    "torchao float8": lambda: quantized("Float8WeightOnlyConfig"),
}


def bytes_of(model: nn.Module) -> int:
    """What the weights take as PyTorch holds them, packed ones in their parts."""

    def size(tensor: Any) -> int:
        if not hasattr(type(tensor), "__tensor_flatten__"):
            return tensor.nbytes
        return sum(size(getattr(tensor, name)) for name in tensor.__tensor_flatten__()[0])

    return sum(map(size, model.state_dict().values()))


# Exports ---------------------------------------------------------------------------------------


def ours(target: str) -> Callable[[nn.Module, Path], None]:
    def write(model: nn.Module, path: Path) -> None:
        with torch.no_grad(), tf.observe(model) as seen:
            model(torch.randn(2, WIDTH)), model(torch.randn(5, WIDTH))
        program = tf.export(model, seen, target=target)  # type: ignore[arg-type]  # one of two
        if program.report is None or not program.report.ok:
            raise RuntimeError(str(program.report and program.report.verdict))
        program.save(path)

    return write


def theirs(model: nn.Module, path: Path) -> None:
    program = torch.onnx.export(
        model, (torch.randn(2, WIDTH),), dynamo=True, verbose=False,
        dynamic_shapes=({0: torch.export.Dim.DYNAMIC},),
    )  # fmt: skip
    assert program is not None
    program.save(path)


WRITERS = {"ours": ours("onnx"), "ours, onnxruntime": ours("onnxruntime"), "torch.onnx": theirs}


def measure(name: str, model: nn.Module, rounds: int) -> list[Line]:
    """Export a model in every way, and run the files in turn."""
    lines, sessions = [], {}
    with tempfile.TemporaryDirectory() as folder:
        for number, (by, write) in enumerate(WRITERS.items()):
            path = Path(folder) / str(number) / "model.onnx"
            path.parent.mkdir()
            lines.append(line := Line(name, by))
            try:
                write(model, path)
                line.said = "onnxruntime refuses the file"
                options = onnxruntime.SessionOptions()
                options.intra_op_num_threads, options.log_severity_level = 1, 4
                sessions[by] = onnxruntime.InferenceSession(
                    str(path), options, providers=["CPUExecutionProvider"]
                )
            except Exception as error:  # noqa: BLE001  # whatever an exporter raises is its row
                line.said = line.said or f"not exported: {type(error).__name__}"
                continue
            line.said = ""
            line.size = sum(part.stat().st_size for part in path.parent.iterdir())
            line.grown = line.size / bytes_of(model)
        for batch in BATCHES:
            run(batch, model, rounds, sessions, {line.by: line for line in lines})
    return lines


def run(
    batch: int, model: nn.Module, rounds: int, sessions: dict[str, Any], lines: dict[str, Line]
) -> None:
    x = torch.randn(batch, WIDTH)
    with torch.no_grad():
        want = model(x).numpy()
    times: dict[str, list[float]] = {by: [] for by in sessions}
    for _ in range(rounds):
        for by, session in sessions.items():
            began = time.perf_counter()
            (got,) = session.run(None, {session.get_inputs()[0].name: x.numpy()})
            times[by].append(time.perf_counter() - began)
            error = float(np.abs(got - want).max() / np.abs(want).max())
            lines[by].error = max(lines[by].error, error)
    for by, seconds in times.items():
        lines[by].milliseconds[batch] = min(seconds) * 1e3


# The table -------------------------------------------------------------------------------------


def missed(lines: list[Line]) -> list[str]:
    """The bars that ours miss, in words."""
    faults = []
    peers = {line.model: line for line in lines if line.by == "torch.onnx" and not line.said}
    for line in (line for line in lines if line.by != "torch.onnx"):
        where, peer = f"{line.model}, {line.by}", peers.get(line.model)
        if line.said:
            faults.append(f"{where}: {line.said}")
            continue
        if line.grown > 1.05:
            faults.append(f"{where}: the file has {line.grown:.2f} times the bytes of the weights")
        if line.error > ERROR:
            faults.append(f"{where}: error {line.error:.1g}")
        if peer is not None and line.size > 1.05 * peer.size:
            faults.append(f"{where}: larger than torch.onnx's")
        for batch, took in line.milliseconds.items():
            if peer is not None and took > SLOWER * peer.milliseconds[batch]:
                faults.append(f"{where}: slower than torch.onnx's at {batch}")
    return faults


def table(lines: list[Line]) -> str:
    peers = {line.model: line for line in lines if line.by == "torch.onnx" and not line.said}
    rows = []
    for line in lines:
        if line.said:
            rows.append((line.model, line.by, line.said, "", "", "", ""))
            continue
        peer, took = peers.get(line.model), line.milliseconds
        shown = [f"{took[batch]:.2f}" for batch in BATCHES]
        if peer is not None and peer is not line:
            shown = [
                f"{text} ({took[batch] / peer.milliseconds[batch]:.2f}x)"
                for text, batch in zip(shown, BATCHES, strict=True)
            ]
        size = f"{line.size / 2**20:.2f}"
        if peer is not None and peer is not line:
            size += f" ({line.size / peer.size:.2f}x)"
        rows.append((line.model, line.by, size, f"{line.grown:.2f}x", *shown, f"{line.error:.1e}"))
    head = ("weights", "by", "MiB", "of the weights", *(f"ms at {b}" for b in BATCHES), "error")
    return markdown(head, rows, {2, 3, 4, 5, 6})


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("models", nargs="*")
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--no-write", action="store_true")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    models = MODELS | (TORCHAO if find_spec("torchao") else {})
    lines = []
    for name in options.models or models:
        lines += measure(name, models[name](), options.rounds)
        print(table(lines[-len(WRITERS) :]), flush=True)
    faults = missed(lines)
    text = (
        "What becomes of packed weights? `python benchmarks/packed.py`: four linear layers of "
        f"{WIDTH} x {WIDTH}, files run in turn, one thread, best of {options.rounds} calls; "
        f"ratios to torch.onnx's; error as a part of the largest number; {machine()}, torch "
        f"{torch.__version__}, onnxruntime {onnxruntime.__version__}.\n\n{table(lines)}\n\n"
        + ("Bars missed: " + "; ".join(faults) if faults else "No bar is missed.")
    )
    print(text)
    if not options.no_write:
        save("packed", [asdict(line) for line in lines], text)
    return bool(faults)


if __name__ == "__main__":
    sys.exit(main())
