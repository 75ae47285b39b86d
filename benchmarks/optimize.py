"""What does rewriting cost, and what is left: our rules beside onnxscript's optimizer.

Decoders like Llama with dynamic sizes, as torch.onnx.export(optimize=False) writes them. Each is
loaded anew for each run; medians of CPU time. The idle pass is a run over what is optimized
already. Writes optimize.json and its section of RESULTS.md; exits 1 when a bar is missed.

    python benchmarks/optimize.py [--layers 2 12] [--rounds 3] [--no-peer] [--no-write] [--json]
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")

import onnx_ir as ir
from record import machine, markdown, save

from torchferry.graph import io
from torchferry.optimizer import OptimizationOptions, Tally
from torchferry.optimizer.driver import apply_rules
from torchferry.optimizer.place import all_nodes
from torchferry.optimizer.plan import STAGES

IDLE, SECONDS = 0.1, 3.0  # ms a node; for 12 layers


@dataclass
class Line:
    """One way to optimize one model."""

    layers: int
    how: str
    before: int
    nodes: int
    seconds: float


def write_llama(layers: int, path: Path) -> None:
    """Export a decoder with dynamic batch and sequence, without torch's own optimizations."""
    import torch
    import transformers

    config = transformers.LlamaConfig(
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=layers,
        num_attention_heads=4,
        num_key_value_heads=2,
        vocab_size=128,
    )
    model = transformers.LlamaForCausalLM(config).eval()

    class Logits(torch.nn.Module):
        def forward(self, ids, mask, positions):
            return model(
                input_ids=ids, attention_mask=mask, position_ids=positions, use_cache=False
            ).logits

    ids = torch.randint(0, 128, (2, 7))
    sizes = {0: torch.export.Dim("batch"), 1: torch.export.Dim("sequence")}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        program = torch.onnx.export(
            Logits(),
            (ids, torch.ones_like(ids), torch.arange(7).expand(2, 7)),
            dynamic_shapes=(sizes,) * 3,
            dynamo=True,
            optimize=False,
            verbose=False,
        )
    program.save(path)


def borrowed(model: ir.Model) -> None:
    """Run the optimizer of onnxscript."""
    from onnxscript import optimizer

    optimizer.optimize_ir(model)


def timed(path: Path, rounds: int, run: Callable[[ir.Model], object]) -> tuple[int, float]:
    """Nodes that are left, and the median of the CPU seconds."""
    spent = []
    for _ in range(rounds):
        model = io.load(path)
        start = time.process_time()
        run(model)
        spent.append(time.process_time() - start)
    return sum(1 for _ in all_nodes(model)), statistics.median(spent)


def idle(path: Path) -> float:
    """Milliseconds a node, when there is nothing to rewrite."""
    model = io.load(path)
    OptimizationOptions("default").apply(model)
    rules = [rule for stage in STAGES for rule in stage.rules]
    spent = []
    for _ in range(5):
        start = time.process_time()
        apply_rules(model, [rule for rule in rules if rule.name in _CLEAN], Tally())
        spent.append(time.process_time() - start)
    return 1e3 * statistics.median(spent) / len(model.graph)


_CLEAN = {name for stage in STAGES if stage.group == "default" for name in stage.names}


def measure(layers: int, rounds: int, *, peer: bool) -> tuple[list[Line], float]:
    """The lines of one model, and its idle pass."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.onnx"
        write_llama(layers, path)
        before = sum(1 for _ in all_nodes(io.load(path)))
        ways: dict[str, Callable[[ir.Model], object]] = {
            "torchferry default": OptimizationOptions("default").apply,
            "torchferry default+onnxruntime": OptimizationOptions(
                "default+onnxruntime-onnxscript"
            ).apply,
        }
        if peer:
            ways["onnxscript optimize"] = borrowed
        lines = [
            Line(layers, how, before, *timed(path, rounds if how[0] == "t" else 1, run))
            for how, run in ways.items()
        ]
        return lines, idle(path)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--layers", type=int, nargs="+", default=[2, 12])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--no-peer", action="store_true")
    parser.add_argument("--no-write", action="store_true")
    parser.add_argument("--json", action="store_true", help="print JSON")
    given = parser.parse_args()
    lines: list[Line] = []
    passes: dict[int, float] = {}
    for layers in given.layers:
        more, passes[layers] = measure(layers, given.rounds, peer=not given.no_peer)
        lines += more
    head = ("layers", "how", "nodes before", "after", "seconds")
    rows = [(str(x.layers), x.how, str(x.before), str(x.nodes), f"{x.seconds:.2f}") for x in lines]
    told = markdown(head, rows, right=(0, 2, 3, 4))
    told += "\n\nIdle pass: " + ", ".join(
        f"{ms:.3f} ms a node ({layers} layers)" for layers, ms in passes.items()
    )
    data = {"machine": machine(), "lines": [asdict(x) for x in lines], "idle": passes}
    print(json.dumps(data, indent=2) if given.json else told)
    if not given.no_write:
        save("optimize", data, f"{machine()}.\n\n{told}")
    slow = [x for x in lines if x.how[0] == "t" and x.layers <= 12 and x.seconds > SECONDS]
    return 1 if slow or max(passes.values()) > IDLE else 0


if __name__ == "__main__":
    sys.exit(main())
