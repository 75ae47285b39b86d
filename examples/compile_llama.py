"""Compile a small Llama for onnxruntime with three sets of rewrites, and compare with eager.

    python examples/compile_llama.py [--config medium|large] [--folder FOLDER]

The large configuration (hidden size 4096, sequence 1024) is meant for a GPU. The chart goes to
FOLDER/compile_llama.svg where matplotlib is installed, and is drawn in text where it is not.
"""
# ruff: noqa: T201  # an example prints

from __future__ import annotations

import argparse
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

# hidden and intermediate size, heads, vocabulary, batch, sequence
CONFIGS = {
    "medium": (256, 512, 8, 1024, 2, 64),
    "large": (4096, 11008, 32, 32000, 2, 1024),
}
PROGRESS = Console(stderr=True)


def make_model(config: str, num_hidden_layers: int, with_mask: bool) -> tuple[LlamaModel, Any]:
    """A Llama with random weights, and its inputs."""
    hidden, intermediate, heads, vocabulary, batch, sequence = CONFIGS[config]
    settings = LlamaConfig(
        hidden_size=hidden,
        intermediate_size=intermediate,
        num_hidden_layers=num_hidden_layers,
        num_attention_heads=heads,
        vocab_size=vocabulary,
        max_position_embeddings=2048,
    )
    settings._attn_implementation = "eager"
    inputs = [torch.randint(0, vocabulary, (batch, sequence))]
    if with_mask:
        inputs.append(torch.ones(batch, sequence, dtype=torch.int64))
    return LlamaModel(settings).eval(), inputs


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


def compare(model: LlamaModel, inputs: Any, warmup: int, repeat: int) -> list[Row]:
    """One row for eager, and one for each set of rewrites."""
    processor = "cuda" if torch.cuda.is_available() else "cpu"
    model, inputs = model.to(processor), [tensor.to(processor) for tensor in inputs]
    row = {"processor": processor, "warmup": warmup, "N": repeat}
    expected = model(*inputs).last_hidden_state
    baseline = measure(lambda: model(*inputs), "eager", warmup, repeat)
    rows: list[Row] = [{"optimum": "eager", "avg_time": baseline, "speedup": 1.0, **row}]
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
        from matplotlib.figure import Figure
    except ImportError:
        longest = max(values)
        for name, value in zip(names, values, strict=True):
            print(f"{name:34} {'#' * round(40 * value / longest)} {value:.2f}")
        return
    figure = Figure(figsize=(8, 3), layout="constrained")
    axes = figure.add_subplot(title="speed-up over eager", xlabel="times as fast")
    bars = axes.barh(names[::-1], values[::-1], color="#0072b2")
    axes.bar_label(bars, fmt="%.2f", padding=3)
    axes.axvline(1, color="#555555", linewidth=1)
    path = folder / "compile_llama.svg"
    figure.savefig(path)
    print(f"the chart is in {path}")


def main() -> None:
    """Measure, tell, draw."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--config", choices=CONFIGS, default="medium")
    parser.add_argument("--num-hidden-layers", type=int, default=1)
    parser.add_argument("--with-mask", action="store_true", help="give an attention mask too")
    parser.add_argument("--warmup", type=int, default=5)
    parser.add_argument("-N", "--repeat", type=int, default=25)
    parser.add_argument("--folder", type=Path, default=Path())
    given = parser.parse_args()
    model, inputs = make_model(given.config, given.num_hidden_layers, given.with_mask)
    with torch.no_grad():
        rows = compare(model, inputs, given.warmup, given.repeat)
    show(rows)
    draw(rows, given.folder)


if __name__ == "__main__":
    main()
