"""
A small Llama under torch.compile, with three sets of rewrites
==============================================================

Compile a small Llama for onnxruntime with three sets of rewrites, and compare with eager::

    python examples/compile_llama.py [--config medium|large] [--hidden-size 1024]
        [--sequence-length 128] [--inductor] [--folder FOLDER]

The large configuration (hidden size 4096, sequence 1024) is meant for a GPU. The third set makes
kernels for the CPU with the machine's C compiler. The chart goes to FOLDER/compile_llama.svg
where matplotlib is installed, and is drawn in text where it is not.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.progress import track
from rich.table import Table
from transformers import LlamaConfig, LlamaModel

import torchferry as tf
from torchferry.compiler import onnx_custom_backend
from torchferry.optimizer import OptimizationOptions

Row = dict[str, Any]
PATTERNS = ("default", "default+onnxruntime", "default+onnxruntime+experimental")
COLUMNS = ("optimum", "processor", "avg_time", "warmup", "N", "n_custom_ops", "speedup")

CONFIGS = {
    "medium": {"hidden_size": 256, "intermediate_size": 512, "num_attention_heads": 8,
               "vocab_size": 1024, "batch_size": 2, "sequence_length": 64},
    "large": {"hidden_size": 4096, "intermediate_size": 11008, "num_attention_heads": 32,
              "vocab_size": 32000, "batch_size": 2, "sequence_length": 1024},
}  # fmt: skip
PROGRESS = Console(stderr=True)


# %%
# The model
# ---------


def make_model(
    batch_size: int, sequence_length: int, with_mask: bool, **sizes: int
) -> tuple[LlamaModel, list[torch.Tensor]]:
    """A Llama with random weights, and its inputs."""
    settings = LlamaConfig(**sizes, max_position_embeddings=2048)
    settings._attn_implementation = "eager"
    shape = (batch_size, sequence_length)
    inputs = [torch.randint(0, sizes["vocab_size"], shape)]
    if with_mask:
        inputs.append(torch.ones(shape, dtype=torch.int64))
    return LlamaModel(settings).eval(), inputs


# %%
# Time a call
# -----------


def measure(call: Callable[[], Any], name: str, warmup: int, repeat: int) -> float:
    """Seconds of a call, on average; the first calls, which compile, are not counted."""
    finish: Callable[[], Any] = torch.cuda.synchronize if torch.cuda.is_available() else int
    for _ in track(range(warmup), f"warm up {name}", console=PROGRESS):
        call()
    finish()
    begin = time.perf_counter()
    for _ in track(range(repeat), f"repeat {name}", console=PROGRESS):
        call()
    finish()
    return (time.perf_counter() - begin) / repeat


def compare(
    model: LlamaModel, inputs: list[torch.Tensor], warmup: int, repeat: int, inductor: bool
) -> list[Row]:
    """One row for eager, one for inductor if it is asked for, and one for each set of rewrites."""
    processor = "cuda" if torch.cuda.is_available() else "cpu"
    model, inputs = model.to(processor), [tensor.to(processor) for tensor in inputs]
    row = {"processor": processor, "warmup": warmup, "N": repeat}
    expected = model(*inputs).last_hidden_state
    baseline = measure(lambda: model(*inputs), "eager", warmup, repeat)
    rows: list[Row] = [{"optimum": "eager", "avg_time": baseline, "speedup": 1.0, **row}]
    if inductor:
        run = torch.compile(model, fullgraph=True, dynamic=False)
        seconds = measure(partial(run, *inputs), "inductor", warmup, repeat)
        rows.append(
            {"optimum": "inductor", "avg_time": seconds, "speedup": baseline / seconds, **row}
        )
    for patterns in PATTERNS:
        torch._dynamo.reset()
        # Gets, for each session, the graph, the ONNX model, the session, and more.
        storage: dict[str, Any] = {}
        options = OptimizationOptions(patterns=patterns, processor=processor.upper())
        backend = partial(onnx_custom_backend, options=options, storage=storage)
        run = torch.compile(model, backend=backend, fullgraph=True, dynamic=False)
        seconds = measure(partial(run, *inputs), patterns, warmup, repeat)
        difference = tf.max_diff(expected, run(*inputs).last_hidden_state)
        print(f"{patterns}: largest difference to eager below 1e-3: {difference['abs'] < 1e-3}")
        nodes = storage["instance"][0]["onnx"].graph.node
        rows.append(
            {
                "optimum": patterns,
                "avg_time": seconds,
                "n_custom_ops": sum(node.domain != "" for node in nodes),
                "speedup": baseline / seconds,
                **row,
            }
        )
    return rows


# %%
# Show and draw
# -------------


def show(rows: list[Row]) -> None:
    """The table; avg_time is in seconds, and lower is better."""
    table = Table(*COLUMNS)
    for row in rows:
        values = [row.get(column, "") for column in COLUMNS]
        table.add_row(*(f"{v:.4g}" if isinstance(v, float) else str(v) for v in values))
    Console(width=110).print(table)


def draw(rows: list[Row], folder: Path) -> None:
    """Bars of the speed-up over eager."""
    names = [row["optimum"] for row in rows]
    values = [row["speedup"] for row in rows]
    try:
        import matplotlib.pyplot as plt
    except ImportError:
        longest = max(values)
        for name, value in zip(names, values, strict=True):
            print(f"{name:34} {'#' * round(40 * value / longest)} {value:.2f}")
        return
    figure, axes = plt.subplots(figsize=(8, 3), layout="constrained")
    axes.set(title="speed-up over eager", xlabel="times as fast")
    bars = axes.barh(names[::-1], values[::-1], color="#0072b2")
    axes.bar_label(bars, fmt="%.2f", padding=3)
    axes.axvline(1, color="#555555", linewidth=1)
    axes.margins(x=0.1)  # room for the labels
    path = folder / "compile_llama.svg"
    figure.savefig(path)
    print(f"the chart is in {path}")


# %%
# All together
# ------------


def main() -> None:
    """Measure, tell, draw."""
    parser = argparse.ArgumentParser(description="Compile a small Llama for onnxruntime.")
    parser.add_argument("--config", choices=CONFIGS, default="medium")
    sizes = [*CONFIGS["medium"], "num_hidden_layers"]
    for name in sizes:
        option = f"--{name.replace('_', '-')}"
        parser.add_argument(option, type=int, help="instead of the configuration's")
    parser.add_argument("--with-mask", action="store_true", help="give an attention mask too")
    parser.add_argument("--inductor", action="store_true", help="measure inductor too")
    parser.add_argument("--warmup", type=int, default=5)
    parser.add_argument("-N", "--repeat", type=int, default=25)
    on_a_page = "sphinx_gallery" in sys.modules  # where nobody looks for the chart's file
    here = Path(tempfile.mkdtemp()) if on_a_page else Path()
    parser.add_argument("--folder", type=Path, default=here)
    given = parser.parse_args()
    chosen = {name: getattr(given, name) for name in sizes if getattr(given, name) is not None}
    shape = {"num_hidden_layers": 1} | CONFIGS[given.config] | chosen
    model, inputs = make_model(with_mask=given.with_mask, **shape)
    with torch.no_grad():
        rows = compare(model, inputs, given.warmup, given.repeat, given.inductor)
    show(rows)
    draw(rows, given.folder)


if __name__ == "__main__":
    main()
