"""How fast is torch.compile(backend="torchferry") beside eager and inductor?

Runs eager, inductor (where a C++ compiler is installed) and the three sets of rewrites in turn on
a Llama prefill, a Llama decode step, a BERT and an MLP of 16 units, which is all overhead; CPU
time of one thread, speed-up over eager of the same round, medians. Writes compile.json and its
section of RESULTS.md beside this file; exits 1 when a bar is missed.

    python benchmarks/compile.py [--rounds 9] [--hidden 256] [--only mlp] [--no-write]
"""

from __future__ import annotations

import argparse
import functools
import os
import shutil
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch
from record import machine, markdown, save

from torchferry.compiler import onnx_custom_backend
from torchferry.optimizer import OptimizationOptions

PATTERNS = ("default", "default+onnxruntime", "default+onnxruntime+experimental")
QUESTION = 'How fast is torch.compile(backend="torchferry") beside eager and inductor?'
WINDOW = 0.05  # seconds that a variant is called for in each round
OVERHEAD = 1.5  # times eager's call of the smallest MLP
Case = tuple[torch.nn.Module, tuple[torch.Tensor, ...]]


@dataclass
class Line:
    """A variant on a case: ms of a call, speed-up over eager, seconds of the first call."""

    case: str
    variant: str
    call: float
    speedup: float
    first: float | None
    bar: float | None = None

    @property
    def passed(self) -> bool:
        """Whether the speed-up reaches the bar, if there is one."""
        return self.bar is None or self.speedup >= self.bar

    @property
    def verdict(self) -> str:
        """The bar and whether it was reached, in words."""
        return "" if self.bar is None else f"{'pass' if self.passed else 'FAIL'}: ≥ {self.bar:.2f}"


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
    found: dict[str, Any] = {"inductor": "inductor"} if shutil.which("g++") else {}
    for patterns in PATTERNS:
        options = OptimizationOptions(patterns)
        found[patterns] = functools.partial(onnx_custom_backend, options=options)
    return found


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
        made[name] = torch.compile(fresh(), backend=backend, dynamic=False)
    return made


def spent() -> float:
    """CPU seconds of this process and of those it started, such as a C++ compiler."""
    return sum(os.times()[:4])


def measure(name: str, case: Case, rounds: int) -> list[Line]:
    """All variants of a case, in turn, each round in the other direction."""
    model, inputs = case
    model.eval()
    calls = variants(model)
    first: dict[str, float] = {}
    for variant, call in calls.items():
        start = spent()
        call(*inputs)
        first[variant] = spent() - start
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
            None if variant == "eager" else first[variant],
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
    return max(1.0, speedups.get("inductor", 1.0)) if "onnxruntime" in variant else 1.0


def table(lines: list[Line]) -> str:
    head = ("case", "variant", "call", "speed-up", "first call", "bar")
    rows = []
    for line in lines:
        first = "" if line.first is None else f"{line.first:.1f} s"
        rows.append((line.case, line.variant, f"{line.call:.3f} ms", f"{line.speedup:.2f}", first,
                     line.verdict))  # fmt: skip
    return markdown(head, rows, right=(2, 3, 4))


def write(lines: list[Line], rounds: int, hidden: int) -> None:
    """compile.json, and the section of RESULTS.md."""
    where = f"{machine()}, torch {torch.__version__}"
    data = {
        "question": QUESTION,
        "machine": where,
        "rounds": rounds,
        "hidden": hidden,
        "results": [asdict(line) | {"passed": line.passed} for line in lines],
    }
    told = f"Hidden size {hidden}. `python benchmarks/compile.py`, {rounds} rounds in turn"
    told += f" on one thread, CPU time; {where}."
    save("compile", data, f"{QUESTION} {told}\n\n{table(lines)}")


def main() -> int:
    parser = argparse.ArgumentParser(description=QUESTION)
    parser.add_argument("--rounds", type=int, default=9, help="runs of each variant")
    parser.add_argument("--hidden", type=int, default=256, help="hidden size of the transformers")
    parser.add_argument("--only", default="", help="cases whose name contains this")
    parser.add_argument("--no-write", action="store_true", help="only print")
    given = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    lines: list[Line] = []
    with torch.no_grad():
        for name, make in cases(given.hidden).items():
            if given.only in name:
                torch._dynamo.reset()
                lines += measure(name, make(), given.rounds)
    print(table(lines))
    if not given.no_write and not given.only:
        write(lines, given.rounds, given.hidden)
    return 0 if all(line.passed for line in lines) else 1


if __name__ == "__main__":
    sys.exit(main())
