"""What does it cost to watch a model with steal_forward?

The model is a Llama of width 1024 with 4 layers and random weights, a prefill of 256 tokens; every
submodule is watched. All variants run in turn on one thread, each right after a plain forward, and
CPU time is measured (so that a busy machine does not count). The median of the multiples counts:

- silent: ``fprint=None``, the cost of watching alone; limit 1.05;
- printed: the trace as it is by default, written to memory; the same limit;
- string_type of a call of ten tensors, with shapes; limit 20 µs;
- stored: silent, with a dump, into a folder and into one file. What the dump takes is timed within
  the same run, and the rest, which is what watching and the forward take, is compared; limit 1.15.
  How fast a dump is compared with a file copy is asked by benchmarks/dump.py.

onnx-diagnostic is measured beside it where it can be imported (``pip install --no-deps
onnx-diagnostic optree``, in an environment of its own); it prints always. Writes
observe.json and its section of RESULTS.md beside this file; exits 1 when a limit is passed.

    python benchmarks/observe.py [--rounds 15] [--no-write]
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import io
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
from record import machine, markdown, save

from torchferry.dumper import store
from torchferry.observer.steal import steal_forward
from torchferry.values import make_dynamic_cache, string_type

QUESTION = "What does it cost to watch a model with steal_forward?"
LAYERS, WIDTH, TOKENS = 4, 1024, 256
ROOM = 2**33


@dataclass(frozen=True)
class Line:
    """One row: what ran, its median CPU time in ms, and that as a multiple of the forward.

    The limit is one of the multiple or, where there is none, of the time.
    """

    what: str
    cpu: float | None
    ratio: float | None = None
    limit: float | None = None
    note: str = ""

    @property
    def passed(self) -> bool:
        """Whether the limit is kept, if there is one."""
        figure = self.cpu if self.ratio is None else self.ratio
        return self.limit is None or (figure is not None and figure <= self.limit)

    @property
    def verdict(self) -> str:
        """The limit and whether it was kept, or a remark."""
        if self.limit is None:
            return self.note
        unit = " ms" if self.ratio is None else ""
        return f"{'pass' if self.passed else 'FAIL'}: <= {self.limit:.2f}{unit}"


def llama() -> Callable[[], None]:
    """The forward that is watched, as a function, with the model as its attribute ``model``."""
    import transformers

    config = transformers.LlamaConfig(
        vocab_size=1000,
        hidden_size=WIDTH,
        intermediate_size=2816,
        num_hidden_layers=LAYERS,
        num_attention_heads=16,
        num_key_value_heads=4,
    )
    torch.manual_seed(0)
    model = transformers.LlamaForCausalLM(config).eval()
    ids = torch.randint(0, 1000, (1, TOKENS))

    def forward() -> None:
        with torch.no_grad():
            model(input_ids=ids)

    vars(forward)["model"] = model
    return forward


def watched(forward: Any, dump: str = "", **options: Any) -> Callable[[Path], None]:
    """A variant that watches every submodule; with ``dump`` it stores what it sees there."""

    def run(place: Path) -> None:
        file = place / dump if dump else None
        with (
            contextlib.redirect_stdout(io.StringIO()),
            steal_forward(
                ("model", forward.model),
                submodules=True,
                dump_file=file,
                storage_limit=ROOM,
                **options,
            ),
        ):
            forward()

    return run


class Clock:
    """CPU milliseconds spent in dumps while it stands in for ``open_dump``."""

    def __init__(self) -> None:
        self.spent = 0.0
        self.bytes = 0
        self._open = store.open_dump

    @contextlib.contextmanager
    def counting(self) -> Iterator[None]:
        """Time what the block does."""
        start = time.process_time()
        try:
            yield
        finally:
            self.spent += (time.process_time() - start) * 1000

    @contextlib.contextmanager
    def open_dump(self, path: Path) -> Iterator[Any]:
        """Open a dump; everything but the block inside is timed."""
        with contextlib.ExitStack() as stack:
            with self.counting():
                self._writer = stack.enter_context(self._open(path))
            yield self
            with self.counting():
                stack.close()

    def add(self, key: Any, value: Any) -> int:
        """Store a value."""
        with self.counting():
            size: int = self._writer.add(key, value)
        self.bytes += size
        return size


def peer(forward: Any, *, stored: bool) -> Callable[[Path], None]:
    """The same with onnx-diagnostic."""
    steal = importlib.import_module("onnx_diagnostic.helpers.torch_helper").steal_forward

    def run(place: Path) -> None:
        dump = str(place / "dump.onnx") if stored else None
        with (
            contextlib.redirect_stdout(io.StringIO()),
            steal(forward.model, submodules=True, dump_file=dump, storage_limit=ROOM),
        ):
            forward()

    return run


def once(variant: Callable[[Path], None]) -> tuple[float, float, int]:
    """CPU milliseconds of a run, threads of its own included; those of the dump, and its bytes."""
    clock = Clock()
    with tempfile.TemporaryDirectory() as place, patch.object(store, "open_dump", clock.open_dump):
        start = time.process_time()
        variant(Path(place))
        total = (time.process_time() - start) * 1000
    return total, clock.spent, clock.bytes


@dataclass(frozen=True)
class Cost:
    """Medians of a variant over the rounds: of the whole, and without what the dump takes.

    Attributes:
        total: CPU milliseconds.
        ratio: as a multiple of the forward that ran right before.
        watching: CPU milliseconds without the dump.
        watching_ratio: that as a multiple.
        bytes: in the dump.
    """

    total: float
    ratio: float
    watching: float
    watching_ratio: float
    bytes: int


def measure(
    forward: Callable[[Path], None], variants: dict[str, Callable[[Path], None]], rounds: int
) -> dict[str, Cost]:
    """All variants in turn, each right after a plain forward, each round the other way round."""
    runs: dict[str, list[tuple[float, float, float, int]]] = {name: [] for name in variants}
    for number in range(rounds):
        names = list(variants)
        for name in names if number % 2 else reversed(names):
            plain, _, _ = once(forward)
            total, dump, size = once(variants[name])
            runs[name].append((plain, total, total - dump, size))
    return {
        name: Cost(
            statistics.median(total for _, total, _, _ in each),
            statistics.median(total / plain for plain, total, _, _ in each),
            statistics.median(rest for _, _, rest, _ in each),
            statistics.median(rest / plain for plain, _, rest, _ in each),
            each[0][3],
        )
        for name, each in runs.items()
    }


def peers(forward: Any) -> tuple[dict[str, Callable[[Path], None]], list[Line]]:
    """What of onnx-diagnostic runs here, and a line with the reason for what does not."""
    found: dict[str, Callable[[Path], None]] = {}
    failed: list[Line] = []
    for what, stored in (("printed", False), ("stored in .onnx", True)):
        name = f"onnx-diagnostic, {what}"
        try:
            variant = peer(forward, stored=stored)
            once(variant)
        # Another library may fail in any way; the reason is part of the result.
        except Exception as error:  # noqa: BLE001
            reason = " ".join(str(error).split()).split(". ")[0][:80]
            failed.append(Line(name, None, note=f"{type(error).__name__}: {reason}"))
        else:
            found[name] = variant
    return found, failed


def descriptions() -> list[Line]:
    """What string_type takes for a call of ten tensors, and for one with a cache among them."""
    tensors = [torch.zeros(2, 3, 4, 5) for _ in range(10)]
    named = {f"x{number}": tensor for number, tensor in enumerate(tensors[2:])}
    pairs = list(zip(tensors[4::2], tensors[5::2], strict=True))
    calls = {
        "ten tensors": ((tensors[0], tensors[1]), named),
        "ten tensors, six of them in a cache": (
            tuple(tensors[:4]), {"cache": make_dynamic_cache(pairs)},
        ),
    }  # fmt: skip
    lines = []
    for what, call in calls.items():
        times = []
        for _ in range(101):
            start = time.process_time_ns()
            for _ in range(100):
                string_type(call, with_shape=True)
            times.append((time.process_time_ns() - start) / 1e8)
        lines.append(Line(f"string_type, {what}", statistics.median(times), None, 0.02))
    return lines


def measure_all(rounds: int) -> list[Line]:
    """All rows of the table."""
    torch.set_num_threads(1)
    forward: Any = llama()
    others, failed = peers(forward)
    variants: dict[str, Callable[[Path], None]] = {
        "forward": lambda _: forward(),
        "steal_forward, silent": watched(forward, fprint=None),
        "steal_forward, printed": watched(forward),
        "steal_forward, stored in a folder": watched(forward, "dump", fprint=None),
        "steal_forward, stored in .onnx": watched(forward, "dump.onnx", fprint=None),
        **others,
    }
    for variant in variants.values():
        once(variant)
    lines = []
    for name, cost in measure(variants["forward"], variants, rounds).items():
        limit = 1.05 if name.startswith("steal_forward") and not cost.bytes else None
        note = f"{cost.bytes / 2**20:.0f} MiB" if cost.bytes else ""
        lines.append(Line(name, cost.total, cost.ratio, limit, note))
        if cost.bytes:
            what = f"{name}, less the dump"
            lines.append(Line(what, cost.watching, cost.watching_ratio, 1.15))
    return [*lines, *failed, *descriptions()]


def table(lines: list[Line]) -> str:
    rows = []
    for line in lines:
        cpu = "" if line.cpu is None else f"{line.cpu:.{1 if line.cpu > 1 else 4}f} ms"
        ratio = "" if line.ratio is None else f"{line.ratio:.3f}"
        rows.append((line.what, cpu, ratio, line.verdict))
    return markdown(("what", "CPU median", "times the forward", "limit"), rows, right=(1, 2))


def write(lines: list[Line], rounds: int) -> None:
    """observe.json, and the section of RESULTS.md."""
    where = f"{machine()}, torch {torch.__version__}"
    data = {
        "question": QUESTION,
        "machine": where,
        "rounds": rounds,
        "unit": "ms",
        "results": [asdict(line) | {"passed": line.passed} for line in lines],
    }
    told = (
        f"{QUESTION} Llama of width {WIDTH}, {LAYERS} layers, a prefill of {TOKENS} tokens, every "
        f"submodule watched. `python benchmarks/observe.py`, {rounds} rounds in turn on one "
        f"thread; {where}."
    )
    save("observe", data, f"{told}\n\n{table(lines)}")


def main() -> int:
    parser = argparse.ArgumentParser(description=QUESTION)
    parser.add_argument("--rounds", type=int, default=15, help="runs of each variant")
    parser.add_argument("--no-write", action="store_true", help="only print the table")
    options = parser.parse_args()
    lines = measure_all(options.rounds)
    print(table(lines))
    if not options.no_write:
        write(lines, options.rounds)
    return 0 if all(line.passed for line in lines) else 1


if __name__ == "__main__":
    sys.exit(main())
