"""What does an export cost where a model has many layers that do the same?

Each round takes a model of 1 to 80 layers through torch.export alone, then through our whole
export (captured, converted, optimized, saved, loaded and verified), then through
torch.onnx.export; CPU time of one thread, medians, and how far the rounds lie apart. A first
export of one layer, with all that torch loads once, is measured in a process of its own. Writes
size.json and its section of RESULTS.md; exits 1 when a bar is missed.

    python benchmarks/size.py [--rounds 2] [--layers 1,4,16] [--only llama] [--no-write]
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch
from record import machine, markdown, save

import torchferry as tf
from torchferry.values.flatten import register_pytrees

LAYERS = (1, 4, 16, 32, 80)
ONCE = 16  # layers: more are exported once, as torch alone takes minutes
ALONE = 32  # layers of Llama: torch alone is not asked for more
RATIO, TO_FIRST, SECONDS = 0.30, 1.6, 7.0
DYNAMIC = torch.export.Dim.DYNAMIC

Inputs = dict[str, Any]


@dataclass
class Line:
    """CPU seconds of each round.

    Attributes:
        model: its kind.
        layers: how many it has.
        ours: whole exports.
        alone: torch.export's.
        peer: torch.onnx's.
        repeated: what our report says.
        first: a first export of one layer.
    """

    model: str
    layers: int
    ours: list[float]
    alone: list[float]
    peer: list[float]
    repeated: str
    first: float

    def bars(self) -> list[tuple[str, bool]]:
        """Every bar for this many layers, and whether it is kept."""
        ours, found = statistics.median(self.ours), []
        if self.layers == 32:
            to_first = ours / self.first
            found.append(
                (f"≤ {TO_FIRST}x a first of one layer: {to_first:.2f}x", to_first <= TO_FIRST)
            )
            if self.alone and self.model == "llama":
                ratio = ours / statistics.median(self.alone)
                found.append((f"≤ {RATIO:.2f}x torch.export: {ratio:.2f}x", ratio <= RATIO))
        if self.layers == 80:
            found.append((f"≤ {SECONDS:.0f} s: {ours:.1f} s", ours <= SECONDS))
        return found


def llama(layers: int) -> tuple[torch.nn.Module, Callable[[int, int, int], Inputs], Any]:
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        hidden_size=256, intermediate_size=512, num_hidden_layers=layers, vocab_size=1000,
        num_attention_heads=8, num_key_value_heads=4,
    )  # fmt: skip

    def inputs(batch: int, new: int, past: int) -> Inputs:
        cache = [
            (torch.randn(batch, 4, past, 32), torch.randn(batch, 4, past, 32))
            for _ in range(layers)
        ]
        return {
            "input_ids": torch.randint(0, 1000, (batch, new)),
            "attention_mask": torch.ones(batch, past + new, dtype=torch.int64),
            "position_ids": torch.arange(past, past + new).expand(batch, new),
            "cache": tf.make_dynamic_cache(cache),
        }

    names = ("input_ids", "attention_mask", "position_ids")
    shapes: Inputs = {name: {0: DYNAMIC, 1: DYNAMIC} for name in names}
    shapes["cache"] = [[{0: DYNAMIC, 2: DYNAMIC}] * layers] * 2
    return LlamaForCausalLM(config).eval(), inputs, shapes


def bert(layers: int) -> tuple[torch.nn.Module, Callable[[int, int, int], Inputs], Any]:
    from transformers import BertConfig, BertModel

    config = BertConfig(
        hidden_size=256, num_hidden_layers=layers, num_attention_heads=8, intermediate_size=512,
        vocab_size=1000,
    )  # fmt: skip

    def inputs(batch: int, new: int, past: int) -> Inputs:
        ids = torch.randint(0, 1000, (batch, new + past))
        return {"input_ids": ids, "attention_mask": torch.ones_like(ids)}

    names = ("input_ids", "attention_mask")
    return BertModel(config).eval(), inputs, {name: {0: DYNAMIC, 1: DYNAMIC} for name in names}


KINDS = {"llama": llama, "bert": bert}


def seconds(call: Callable[[], Any]) -> tuple[float, Any]:
    begun = time.process_time()
    made = call()
    return time.process_time() - begun, made


def by_us(kind: str, layers: int) -> tuple[float, Any]:
    model, inputs, _ = KINDS[kind](layers)
    sets = [((), inputs(2, 3, 5)), ((), inputs(3, 4, 7))]
    return seconds(lambda: tf.export(model, sets))


def alone(model: torch.nn.Module, inputs: Inputs, shapes: Any) -> Any:
    return torch.export.export(model, (), inputs, dynamic_shapes=shapes, strict=False)


def measure(kind: str, layers: int, rounds: int, first: float, *, peer: bool) -> Line:
    line = Line(kind, layers, [], [], [], "", first)
    model, inputs, shapes = KINDS[kind](layers)
    for _ in range(1 if layers > ONCE else rounds):
        if kind != "llama" or layers <= ALONE:
            with torch.no_grad():
                line.alone.append(seconds(lambda: alone(model, inputs(2, 3, 5), shapes))[0])
        spent, made = by_us(kind, layers)
        line.ours.append(spent)
        assert made.report.ok
        found = made.report.data["repeated"]
        line.repeated = f"{len(found['like'])} of {found['layers']}"
        if peer and layers <= ONCE:
            line.peer.append(seconds(lambda: torch.onnx.export(
                model, (), kwargs=inputs(2, 3, 5), dynamic_shapes=shapes, dynamo=True,
                verbose=False))[0])  # fmt: skip
    return line


def _shown(values: list[float], beside: float | None = None) -> str:
    if not values:
        return ""
    middle = statistics.median(values)
    noise = f" ±{(max(values) - min(values)) / 2 / middle:.0%}" if len(values) > 1 else ""
    return f"{middle:.2f} s{noise}" if beside is None else f"{middle / beside:.2f}x{noise}"


def table(lines: list[Line]) -> str:
    head = ("model", "layers", "torch.export", "ours, whole", "ours to torch.export",
            "torch.onnx to torch.export", "repeated", "bars")  # fmt: skip
    rows = []
    for line in lines:
        alone = statistics.median(line.alone) if line.alone else None
        bars = "; ".join(f"{'pass' if kept else 'FAIL'}: {text}" for text, kept in line.bars())
        ratios = (
            ["", ""] if alone is None else [_shown(line.ours, alone), _shown(line.peer, alone)]
        )
        rows.append((line.model, str(line.layers), _shown(line.alone), _shown(line.ours), *ratios,
                     line.repeated, bars))  # fmt: skip
    return markdown(head, rows, right=range(1, 7))


def write(lines: list[Line], rounds: int) -> None:
    firsts = ", ".join(
        f"{kind} {next(line.first for line in lines if line.model == kind):.2f} s"
        for kind in dict.fromkeys(line.model for line in lines)
    )
    told = (
        "What does an export cost where a model has many layers that do the same? "
        f"`python benchmarks/size.py`, hidden size 256, {rounds} rounds in turn (1 beyond {ONCE} "
        "layers), CPU time of one thread; ours is captured, converted, optimized, saved, loaded "
        f"and verified. A first export of one layer: {firsts}; {machine()}, torch "
        f"{torch.__version__}."
    )
    save("size", [asdict(line) for line in lines], f"{told}\n\n{table(lines)}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--layers", default=",".join(map(str, LAYERS)))
    parser.add_argument("--only", default="", choices=["", *KINDS])
    parser.add_argument("--no-peer", action="store_true", help="leave torch.onnx out")
    parser.add_argument("--no-write", action="store_true")
    parser.add_argument("--first", choices=[*KINDS], help="print the seconds of a first export")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    if options.first:
        print(by_us(options.first, 1)[0])
        return 0
    lines = []
    for kind in [options.only] if options.only else KINDS:
        asked = [sys.executable, __file__, "--first", kind]
        said = subprocess.run(asked, check=True, capture_output=True, text=True).stdout
        by_us(kind, 1)
        register_pytrees()  # of the library that the model has imported
        for layers in map(int, options.layers.split(",")):
            first = float(said.split()[-1])
            lines.append(measure(kind, layers, options.rounds, first, peer=not options.no_peer))
            print(table(lines[-1:]).splitlines()[-1], flush=True)
    print(table(lines))
    if not options.no_write:
        write(lines, options.rounds)
    return 0 if all(kept for line in lines for _, kept in line.bars()) else 1


if __name__ == "__main__":
    sys.exit(main())
