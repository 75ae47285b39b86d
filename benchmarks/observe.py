"""What does it cost to watch a model with steal_forward?

The model is a Llama of width 1024 with 4 layers and random weights, a prefill of 256 tokens; every
submodule is watched. All variants run in turn on one thread, CPU time is measured (so that a busy
machine does not count), and the medians are compared with that of the plain forward:

- silent: ``fprint=None``, the cost of watching alone; limit 1.05;
- printed: the trace as it is by default, written to memory; the same limit;
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
import json
import platform
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch

from torchferry.dumper import store
from torchferry.observer.steal import steal_forward

HERE = Path(__file__).resolve().parent
QUESTION = "What does it cost to watch a model with steal_forward?"
LAYERS, WIDTH, TOKENS = 4, 1024, 256
ROOM = 2**33


@dataclass(frozen=True)
class Line:
    """One row: what ran, its median CPU time in ms, and that as a multiple of the forward."""

    what: str
    cpu: float | None
    ratio: float | None = None
    limit: float | None = None
    note: str = ""

    @property
    def passed(self) -> bool:
        """Whether the ratio keeps the limit, if there is one."""
        return self.limit is None or (self.ratio is not None and self.ratio <= self.limit)

    @property
    def verdict(self) -> str:
        """The limit and whether it was kept, or a remark."""
        if self.limit is None:
            return self.note
        return f"{'pass' if self.passed else 'FAIL'}: <= {self.limit:.2f}"


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


def measure(
    variants: dict[str, Callable[[Path], None]], rounds: int
) -> dict[str, tuple[float, float, int]]:
    """The medians of each variant: all, without the dump, bytes in the dump.

    All variants run in turn, each round in the other direction.
    """
    runs: dict[str, list[tuple[float, float, int]]] = {name: [] for name in variants}
    for number in range(rounds):
        names = list(variants)
        for name in names if number % 2 else reversed(names):
            runs[name].append(once(variants[name]))
    return {
        name: (
            statistics.median(total for total, _, _ in each),
            statistics.median(total - dump for total, dump, _ in each),
            each[0][2],
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
    found = measure(variants, rounds)
    plain = found["forward"][0]
    lines = []
    for name, (total, watching, size) in found.items():
        limit = 1.05 if name.startswith("steal_forward") and not size else None
        note = f"{size / 2**20:.0f} MiB" if size else ""
        lines.append(Line(name, total, total / plain, limit, note))
        if size:
            lines.append(Line(f"{name}, less the dump", watching, watching / plain, 1.15))
    return lines + failed


def table(lines: list[Line]) -> str:
    """A Markdown table that also reads well on a terminal."""
    rows = [("what", "CPU median", "times the forward", "limit")]
    for line in lines:
        cpu = "" if line.cpu is None else f"{line.cpu:.1f} ms"
        ratio = "" if line.ratio is None else f"{line.ratio:.3f}"
        rows.append((line.what, cpu, ratio, line.verdict))
    widths = [max(len(row[column]) for row in rows) for column in range(4)]
    text = [
        f"| {a.ljust(widths[0])} | {b.rjust(widths[1])} | {c.rjust(widths[2])} "
        f"| {d.ljust(widths[3])} |"
        for a, b, c, d in rows
    ]
    marks = [
        f"{'-' * (w - 1)}{':' if column in (1, 2) else '-'}" for column, w in enumerate(widths)
    ]
    return "\n".join([text[0], f"| {' | '.join(marks)} |", *text[1:]])


def write(lines: list[Line], rounds: int) -> None:
    """observe.json, and the section ``## observe`` of RESULTS.md; other sections stay."""
    machine = f"Python {platform.python_version()}, {platform.system()} {platform.machine()}"
    data = {
        "question": QUESTION,
        "machine": f"{machine}, torch {torch.__version__}",
        "rounds": rounds,
        "unit": "ms",
        "results": [
            {
                "what": line.what,
                "cpu_median": None if line.cpu is None else round(line.cpu, 2),
                "ratio": None if line.ratio is None else round(line.ratio, 4),
                "limit": line.limit,
                "passed": line.passed,
                "note": line.note,
            }
            for line in lines
        ],
    }
    (HERE / "observe.json").write_text(json.dumps(data, indent=2) + "\n", "utf-8")
    results = HERE / "RESULTS.md"
    old = results.read_text("utf-8") if results.exists() else "# Results of the benchmarks\n"
    kept = [part.strip() for part in old.split("\n## ") if not part.startswith("observe\n")]
    kept.append(
        f"observe\n\n{QUESTION} Llama of width {WIDTH}, {LAYERS} layers, a prefill of {TOKENS} "
        f"tokens, every submodule watched. `python benchmarks/observe.py`, {rounds} rounds in "
        f"turn on one thread; {data['machine']}.\n\n{table(lines)}"
    )
    kept[1:] = sorted(kept[1:])
    results.write_text("\n\n## ".join(kept) + "\n", "utf-8")


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
