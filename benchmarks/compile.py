"""How fast is torch.compile(backend="torchferry") beside eager and inductor?

Runs eager, inductor in two modes (where a C++ compiler is installed), the backend of
experimental-experiment (where it is installed) and the three sets of rewrites in turn on a Llama
prefill, a Llama decode step, a BERT and an MLP of 16 units, which is all overhead; CPU time of one
thread, speed-up over eager of the same round, medians. The first call is measured in processes of
its own, one with an empty cache and one that finds what the other left. Writes compile.json and
its section of RESULTS.md beside this file; exits 1 when a bar is missed.

    python benchmarks/compile.py [--rounds 9] [--hidden 256] [--only mlp] [--no-write]
    python benchmarks/compile.py --hidden 1024 --no-first --rounds 5
"""

from __future__ import annotations

import argparse
import functools
import importlib.util
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch
from record import machine, markdown, save

from torchferry.compiler import onnx_custom_backend
from torchferry.optimizer import OptimizationOptions

HIDDEN = 256
PATTERNS = ("default", "default+onnxruntime", "default+onnxruntime+experimental")
PEER = "experimental-experiment"
QUESTION = 'How fast is torch.compile(backend="torchferry") beside eager and inductor?'
WINDOW = 0.05  # seconds that a variant is called for in each round
OVERHEAD = 1.5  # times eager's call of the smallest MLP
KEPT = 0.3  # of inductor's first call with an empty cache, for ours with a full one
FIRST = ("eager", "inductor", *PATTERNS[1:])  # "eager" traces, and compiles nothing
Case = tuple[torch.nn.Module, tuple[torch.Tensor, ...]]


@dataclass
class Line:
    """A variant on a case: ms of a call, and speed-up over eager."""

    case: str
    variant: str
    call: float
    speedup: float
    bar: float | None = None

    @property
    def passed(self) -> bool:
        """Whether the speed-up reaches the bar, if there is one."""
        return self.bar is None or self.speedup >= self.bar

    @property
    def verdict(self) -> str:
        """The bar and whether it was reached, in words."""
        return "" if self.bar is None else f"{'pass' if self.passed else 'FAIL'}: ≥ {self.bar:.2f}"


@dataclass
class First:
    """CPU seconds of a first call: with an empty cache, and in a second process."""

    case: str
    variant: str
    cold: float
    kept: float
    inductor: float | None

    @property
    def passed(self) -> bool:
        """Whether it takes no longer than inductor's, and from the cache a part of that."""
        if self.inductor is None or self.variant not in PATTERNS:
            return True
        return self.cold <= self.inductor and self.kept <= KEPT * self.inductor

    @property
    def verdict(self) -> str:
        """The bars and whether they were reached, in words."""
        if self.inductor is None or self.variant not in PATTERNS:
            return ""
        bars = f"≤ {self.inductor:.1f} s, then ≤ {KEPT * self.inductor:.1f} s"
        return f"{'pass' if self.passed else 'FAIL'}: {bars}"


class Decode(torch.nn.Module):
    """One token after a past that is given as tensors, so that every call is the same."""

    def __init__(self, model: torch.nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, ids: torch.Tensor, *past: torch.Tensor) -> Any:
        from transformers import DynamicCache

        cache = DynamicCache()
        for layer in range(len(past) // 2):
            cache.update(past[2 * layer], past[2 * layer + 1], layer)
        return self.model(ids, cache=cache).last_hidden_state


def cases(hidden: int) -> dict[str, Callable[[], Case]]:
    """The models and their inputs, by name."""
    import transformers

    def llama(layers: int) -> Any:
        return transformers.LlamaModel(
            transformers.LlamaConfig(
                vocab_size=1000, hidden_size=hidden, intermediate_size=2 * hidden,
                num_hidden_layers=layers, num_attention_heads=8, num_key_value_heads=4,
                use_cache=False,
            )
        )  # fmt: skip

    def decode() -> Case:
        shape = (1, 4, 64, hidden // 8)
        return Decode(llama(2)), (torch.tensor([[5]]), *(torch.randn(shape) for _ in range(4)))

    def bert() -> Case:
        config = transformers.BertConfig(
            hidden_size=hidden, num_hidden_layers=2, num_attention_heads=4,
            intermediate_size=4 * hidden, vocab_size=1000,
        )  # fmt: skip
        return transformers.BertModel(config), (torch.randint(0, 1000, (1, 128)),)

    def mlp() -> Case:
        linears = [torch.nn.Linear(16, 16) for _ in range(3)]
        layers = [linears[0], torch.nn.ReLU(), linears[1], torch.nn.ReLU(), linears[2]]
        return torch.nn.Sequential(*layers), (torch.randn(4, 16),)

    return {
        "llama prefill": lambda: (llama(1), (torch.randint(0, 1000, (2, 256)),)),
        "llama decode": decode,
        "bert": bert,
        "mlp": mlp,
    }


def backends() -> dict[str, Any]:
    """What to compile with, by name."""
    found: dict[str, Any] = {}
    if shutil.which("g++"):
        found = {"inductor": "inductor", "inductor, max-autotune": "inductor"}
    if importlib.util.find_spec("experimental_experiment"):
        found[PEER] = peer()
    for patterns in PATTERNS:
        options = OptimizationOptions(patterns)
        found[patterns] = functools.partial(onnx_custom_backend, options=options)
    return found


def peer() -> Any:
    """The backend of experimental-experiment, as its documentation puts it together."""
    from experimental_experiment import torch_dynamo, xbuilder
    from torch._dynamo.backends.common import aot_autograd

    options = xbuilder.OptimizationOptions(patterns="default+onnxruntime")
    compiler = functools.partial(
        torch_dynamo.onnx_custom_backend, target_opset=18, options=options
    )
    table = torch_dynamo.get_decomposition_table()
    return aot_autograd(fw_compiler=compiler, decompositions=table)


def variants(model: torch.nn.Module) -> dict[str, Callable[..., Any]]:
    """Eager, and the model compiled in each way.

    Each is a function with code of its own: dynamo keeps what it compiled with the code, and
    looks through all of it at every call.
    """

    def fresh() -> Callable[..., Any]:
        def call(*inputs: torch.Tensor) -> Any:
            return model(*inputs)

        call.__code__ = call.__code__.replace()
        return call

    made: dict[str, Callable[..., Any]] = {"eager": model}
    for name, backend in backends().items():
        mode = name.partition(", ")[2] or None
        made[name] = torch.compile(fresh(), backend=backend, dynamic=False, mode=mode)
    return made


def spent() -> float:
    """CPU seconds of this process and of those it started, such as a C++ compiler."""
    return sum(os.times()[:4])


def measure(name: str, case: Case, rounds: int) -> list[Line]:
    """All variants of a case, in turn, each round in the other direction."""
    model, inputs = case
    model.eval()
    calls = variants(model)
    for variant in list(calls):
        try:
            calls[variant](*inputs)
        except torch._dynamo.exc.BackendCompilerFailed as error:
            if variant != PEER:
                raise
            print(f"{name}: {PEER} fails: {str(error)[:200]}", file=sys.stderr)
            del calls[variant]
    call = calls["eager"]
    start = time.process_time()
    for _ in range(10):
        call(*inputs)
    repeat = max(3, round(WINDOW / (time.process_time() - start) * 10))
    times: dict[str, list[float]] = {variant: [] for variant in calls}
    for number in range(rounds):
        order = list(calls)
        for variant in order if number % 2 else reversed(order):
            call = calls[variant]
            start = time.process_time()
            for _ in range(repeat):
                call(*inputs)
            times[variant].append((time.process_time() - start) / repeat)
    speedups = {
        variant: statistics.median(e / t for e, t in zip(times["eager"], each, strict=True))
        for variant, each in times.items()
    }
    return [
        Line(
            name,
            variant,
            statistics.median(each) * 1000,
            speedups[variant],
            bar(name, variant, speedups),
        )
        for variant, each in times.items()
    ]


def bar(case: str, variant: str, speedups: dict[str, float]) -> float | None:
    """The least speed-up: eager's, and inductor's for what onnxruntime fuses."""
    if variant not in PATTERNS:
        return None
    if case == "mlp":
        return 1 / OVERHEAD
    peers = [ratio for name, ratio in speedups.items() if "inductor" in name]
    return max(1.0, *peers) if "onnxruntime" in variant else 1.0


def first_call(name: str, variant: str, hidden: int) -> float:
    """CPU seconds of the first call, in this process, and of those it starts."""
    model, inputs = cases(hidden)[name]()
    model.eval()
    model(*inputs)
    backend = backends().get(variant, variant)
    start = spent()
    torch.compile(model, backend=backend, dynamic=False)(*inputs)
    return spent() - start


def first_calls(name: str, hidden: int) -> list[First]:
    """The first call in processes of its own, the second of which finds a cache."""
    found: dict[str, list[float]] = {}
    for variant in FIRST:
        if variant == "inductor" and not shutil.which("g++"):
            continue
        with tempfile.TemporaryDirectory() as folder:
            places = {"TORCHFERRY_CACHE": folder, "TORCHINDUCTOR_CACHE_DIR": folder}
            command = [sys.executable, __file__, f"--hidden={hidden}", "--first", name, variant]
            runs = [
                subprocess.run(
                    command, env=os.environ | places, check=True, capture_output=True, text=True
                )
                for _ in range(2)
            ]
        found[variant] = [float(run.stdout.split()[-1]) for run in runs]
    peer = found.get("inductor", [None])[0]
    return [First(name, variant, *times, peer) for variant, times in found.items()]


def table(lines: list[Line]) -> str:
    head = ("case", "variant", "call", "speed-up", "bar")
    rows = [
        (line.case, line.variant, f"{line.call:.3f} ms", f"{line.speedup:.2f}", line.verdict)
        for line in lines
    ]
    return markdown(head, rows, right=(2, 3))


def first_table(firsts: list[First]) -> str:
    head = ("case", "variant", "first call", "from the cache", "bar")
    rows = [
        (first.case, first.variant, f"{first.cold:.2f} s", f"{first.kept:.2f} s", first.verdict)
        for first in firsts
    ]
    return markdown(head, rows, right=(2, 3))


def write(lines: list[Line], firsts: list[First], rounds: int, hidden: int) -> None:
    """compile.json, and the section of RESULTS.md."""
    where = f"{machine()}, torch {torch.__version__}"
    data = {
        "question": QUESTION,
        "machine": where,
        "rounds": rounds,
        "hidden": hidden,
        "results": [asdict(line) | {"passed": line.passed} for line in lines],
        "first": [asdict(first) | {"passed": first.passed} for first in firsts],
    }
    told = f"Hidden size {hidden}. `python benchmarks/compile.py --hidden {hidden}`, "
    told += f"{rounds} rounds in turn on one thread, CPU time; {where}."
    note = "The first call, processes it starts included; `eager` only traces."
    tables = table(lines) + (f"\n\n{note}\n\n{first_table(firsts)}" if firsts else "")
    name = "compile" if hidden == HIDDEN else f"compile_{hidden}"
    save(name, data, f"{QUESTION} {told}\n\n{tables}")


def main() -> int:
    parser = argparse.ArgumentParser(description=QUESTION)
    parser.add_argument("--rounds", type=int, default=9, help="runs of each variant")
    parser.add_argument(
        "--hidden", type=int, default=HIDDEN, help="hidden size of the transformers"
    )
    parser.add_argument("--only", default="", help="cases whose name contains this")
    parser.add_argument("--no-write", action="store_true", help="only print")
    parser.add_argument("--no-first", action="store_true", help="without the first calls")
    parser.add_argument("--first", nargs=2, help=argparse.SUPPRESS)
    given = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    if given.first:
        with torch.no_grad():
            print(first_call(*given.first, given.hidden))
        return 0
    lines: list[Line] = []
    firsts: list[First] = []
    with torch.no_grad():
        for name, make in cases(given.hidden).items():
            if given.only in name:
                torch._dynamo.reset()
                lines += measure(name, make(), given.rounds)
                firsts += [] if given.no_first else first_calls(name, given.hidden)
                print(table(lines), file=sys.stderr, flush=True)
    print(table(lines), first_table(firsts) if firsts else "", sep="\n\n")
    # Where the first calls are told they would be lost.
    lost = given.no_first and given.hidden == HIDDEN
    if not (given.no_write or given.only or lost):
        write(lines, firsts, given.rounds, given.hidden)
    return 0 if all(line.passed for line in (*lines, *firsts)) else 1


if __name__ == "__main__":
    sys.exit(main())
