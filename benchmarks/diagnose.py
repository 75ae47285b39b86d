"""Does diagnose name the module that is at fault, and what does it cost?

A fault is planted in a random submodule of a small model of the zoo: a data-dependent ``if``, a
graph break, an operator without a fake implementation, a size that becomes a number, an in-place
write on a view, a constant that is wrong at other sizes. `diagnose` is to name that module and
that line, in at most 3 times the CPU time of exporting the called modules one by one, each once
by torch.export on the sizes it was called with; the two take turns at being first. And recording
the calls of all modules of a 24-layer Llama is to cost at most 10 % over a forward and one copy
of each tensor that goes in or out of a module: the median of several processes, as the C library
takes large blocks of memory from the system each time in some of them, and keeps them in others,
which moves the forward alone by a fifth. Writes diagnose.json and its section of RESULTS.md beside
this file; exits 1 when a bar is missed.

    python benchmarks/diagnose.py [--no-write] [--seed 0] [--every-fault] [MODEL ...]
"""

from __future__ import annotations

import argparse
import ctypes
import gc
import json
import random
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from record import machine, markdown, save
from torch import nn

from torchferry.capturer import accept_aliases
from torchferry.capturer.patching.registering import register_containers
from torchferry.diagnoser import Diagnosis, diagnose, trace_forward_execution
from torchferry.diagnoser.record.tree import Piece
from torchferry.diagnoser.record.widen import main_variant
from torchferry.diagnoser.trial.attempt import export_once
from torchferry.diagnoser.trial.made import as_module
from torchferry.diagnoser.trial.quiet import quiet
from torchferry.sources.source import load_source
from torchferry.values.clone import clone

sys.path.append(str(Path(__file__).resolve().parents[1] / "tests" / "diagnoser"))
from planting import FAULTS, is_named, place_for, plant

QUESTION = "Does diagnose name the module that is at fault, and what does it cost?"
MODELS = (
    "mlp", "qwen3", "tiny-bert", "tiny-llm", "tiny-resnet", "tiny-vit", "gpt2", "llama", "qwen2",
    "gemma2", "t5", "bart", "distilbert", "unet", "convnext", "swin", "clip", "whisper", "dlrm",
    "segformer",
)  # fmt: skip
TIMES = 3.0  # the time of exporting one by one
OVER = 0.10  # the time of a forward and one copy


@dataclass(frozen=True)
class Line:
    """One fault: where it was planted, what was named, and the CPU seconds."""

    model: str
    fault: str
    planted: str
    named: str
    line: str
    right: bool
    seconds: float
    one_by_one: float


def main() -> int:
    parser = argparse.ArgumentParser(description=QUESTION)
    parser.add_argument("models", nargs="*", default=list(MODELS))
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--every-fault", action="store_true", help="not one a model, in turn")
    parser.add_argument("--no-write", action="store_true")
    parser.add_argument("--recording", action="store_true", help="that alone, once, as JSON")
    options = parser.parse_args()
    if options.recording:
        print(json.dumps(overhead()))
        return 0
    lines: list[Line] = []
    try_model("mlp", "graph_break", options.seed)  # what is loaded at first use
    for name, fault in chosen(options.models, options.every_fault):
        lines.append(try_model(name, fault, options.seed, len(lines) % 2 == 0))
        print(f"{name} {fault}: {lines[-1]}", file=sys.stderr)
    recording = overheads()
    section = table(lines, recording)
    print(section)
    if not options.no_write:
        write(lines, recording, section)
    quick = sum(x.seconds for x in lines) <= TIMES * sum(x.one_by_one for x in lines)
    return 0 if all(x.right for x in lines) and quick and recording["over"] <= OVER else 1


def chosen(models: list[str], every: bool) -> Iterator[tuple[str, str]]:
    """Models with one fault each, in turn, or with all of them."""
    kinds = list(FAULTS)
    for number, name in enumerate(models):
        for fault in kinds if every else [kinds[number % len(kinds)]]:
            yield name, fault


# One fault ------------------------------------------------------------------------------------


def try_model(name: str, fault: str, seed: int, first: bool = True) -> Line:
    """Plant a fault, find it, and export the modules one by one before or after that."""
    source = load_source(f"zoo:{name}")
    sets = [kwargs for _, kwargs in source.input_sets[:2]]
    place = place_for(source.model, sets[1], random.Random(f"{name} {fault} {seed}"))
    plant(source.model.get_submodule(place), fault)
    exporter = FAULTS[fault].exporter

    def find() -> Diagnosis:
        return diagnose(source.model, sets, exporter=exporter)

    def each() -> None:
        one_by_one(source.model, sets)

    if first:
        found, seconds = timed(find)
        _, others = timed(each)
    else:
        _, others = timed(each)
        found, seconds = timed(find)
    named = [place for culprit in found.culprits for place in culprit.places]
    line = found.culprits[0].status.line if found.culprits else None
    right = named == [place] and is_named(fault, line)
    told = ", ".join(named) or ("nothing" if not found.culprits else "the model itself")
    return Line(
        name, fault, place or "the model itself", told, short(line), right, seconds, others
    )


def one_by_one(model: nn.Module, sets: list[dict[str, Any]]) -> None:
    """Record the calls, then torch.export of every module that was called; failures count too."""
    with trace_forward_execution(model) as root, torch.no_grad():
        for kwargs in sets:
            model(**accept_aliases(model, clone(kwargs)))
    for piece in root.walk():
        if piece.calls:
            with quiet(), torch.no_grad():
                export_one(piece)


def export_one(piece: Piece) -> None:
    seen = main_variant(piece)[1].seen
    for call in seen.calls:
        register_containers((call.args, call.kwargs, call.outputs))
    module = as_module(piece)
    try:
        export_once(module, seen)
    except Exception as error:  # noqa: BLE001  (a fault was planted: the time counts)
        del error


def timed(run: Callable[[], Any]) -> tuple[Any, float]:
    """What it gives, and its CPU seconds; what an earlier run left is taken away before."""
    gc.collect()
    started = time.process_time()
    made = run()
    return made, time.process_time() - started


def short(line: str | None) -> str:
    """``file:line`` without its folder."""
    place = (line or "").partition(": ")[0]
    return Path(place).name or "-"


# Recording ------------------------------------------------------------------------------------


def overhead(rounds: int = 9) -> dict[str, float]:
    """CPU time of a forward, of one copy of all tensors, and of recording; medians, in turn."""
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        hidden_size=512, intermediate_size=1376, num_hidden_layers=24, num_attention_heads=8,
        vocab_size=1024, use_cache=False,
    )  # fmt: skip
    model = LlamaForCausalLM(config).eval()
    ids = torch.randint(0, 1024, (2, 256))
    tensors = distinct(model, ids)

    def forward() -> None:
        model(input_ids=ids)

    def copy() -> None:
        kept = [tensor.clone() for tensor in tensors]  # as recording keeps them: memory is new
        del kept

    def record() -> None:
        with trace_forward_execution(model):
            model(input_ids=ids)

    seconds: dict[str, list[float]] = {"forward": [], "copy": [], "record": []}
    with torch.no_grad():
        for number in range(rounds + 1):
            for run in (forward, copy, record):
                fresh_memory()
                _, spent = timed(run)
                if number:  # the first warms up
                    seconds[run.__name__].append(spent)
    medians = {name: statistics.median(spent) for name, spent in seconds.items()}
    # Of each round by itself: a machine that is busy for a while is so for all three.
    rounds_of = zip(seconds["record"], seconds["forward"], seconds["copy"], strict=True)
    over = statistics.median(recorded / (plain + one) - 1 for recorded, plain, one in rounds_of)
    return {**medians, "over": over, "tensors": float(len(tensors))}


def overheads(processes: int = 7) -> dict[str, float]:
    """The process whose excess is the median one, and the least and largest excess."""
    command = [sys.executable, __file__, "--recording"]
    runs: list[dict[str, float]] = []
    for _ in range(processes):
        done = subprocess.run(command, check=True, capture_output=True, text=True)
        runs.append(json.loads(done.stdout.splitlines()[-1]))
        print(f"recording: {runs[-1]}", file=sys.stderr)
    runs.sort(key=lambda run: run["over"])
    middle = runs[processes // 2]
    return {**middle, "least": runs[0]["over"], "largest": runs[-1]["over"]}


def fresh_memory() -> None:
    """Give freed memory back, where the C library can: each run gets its pages anew."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


def distinct(model: nn.Module, ids: torch.Tensor) -> list[torch.Tensor]:
    """Every tensor that goes in or out of a module, once."""
    found: dict[int, torch.Tensor] = {}

    def keep(_module: nn.Module, args: Any, kwargs: Any, outputs: Any) -> None:
        for leaf in torch.utils._pytree.tree_leaves((args, kwargs, outputs)):
            if isinstance(leaf, torch.Tensor):
                found[id(leaf)] = leaf

    with ExitStack() as stack, torch.no_grad():
        for module in model.modules():
            hook = module.register_forward_hook(keep, with_kwargs=True)
            stack.callback(hook.remove)
        model(input_ids=ids)
    return list(found.values())


# What was found -------------------------------------------------------------------------------


def table(lines: list[Line], recording: dict[str, float]) -> str:
    head = (
        "model",
        "fault",
        "planted in",
        "named",
        "line",
        "right",
        "time",
        "one by one",
        "times",
    )
    rows = [
        (x.model, x.fault, x.planted, x.named, x.line, "yes" if x.right else "no",
         f"{x.seconds:.2f} s", f"{x.one_by_one:.2f} s", f"{x.seconds / x.one_by_one:.2f}")
        for x in lines
    ]  # fmt: skip
    costs = [
        ("forward of a 24-layer Llama, hidden 512, 2 x 256", f"{recording['forward']:.3f} s"),
        (f"one copy of {recording['tensors']:.0f} tensors", f"{recording['copy']:.3f} s"),
        ("forward while every module is recorded", f"{recording['record']:.3f} s"),
        (f"over forward and copy, bar {OVER:.0%}", f"{recording['over']:+.1%}"),
        (
            "the same, of the processes least and most",
            f"{recording['least']:+.1%}, {recording['largest']:+.1%}",
        ),
    ]
    shown = markdown(head, rows, right=(6, 7, 8))
    return f"{shown}\n\n{markdown(('recording', 'CPU time'), costs, right=(1,))}"


def write(lines: list[Line], recording: dict[str, float], shown: str) -> None:
    right, models = sum(x.right for x in lines), len({x.model for x in lines})
    ratio = sum(x.seconds for x in lines) / sum(x.one_by_one for x in lines)
    worst = max(x.seconds / x.one_by_one for x in lines)
    told = f"{QUESTION} {right} of {len(lines)} faults in {models} models of the zoo, in "
    told += (
        f"{ratio:.2f} times the time of exporting one by one (worst {worst:.2f}, bar {TIMES}). "
    )
    told += f"`python benchmarks/diagnose.py`; {machine()}, torch {torch.__version__}."
    data = {
        "question": QUESTION, "machine": machine(), "lines": [asdict(x) for x in lines],
        "recording": recording,
    }  # fmt: skip
    save("diagnose", data, f"{told}\n\n{shown}")


if __name__ == "__main__":
    sys.exit(main())
