"""What does a refusal cost, beside one call of torch.export?

Ten models, two deep networks and five ends that no trace can follow. Captures each with
torchferry, which refuses it, and exports it with torch.export as it stands, which fails too, in
turn in one process, after one round that is not counted. Writes refuse.json and its section of
RESULTS.md; exits 1 if a refusal takes more than 2.5 times as long, or a model is not refused.

    python benchmarks/refuse.py [--rounds 3] [--only PATTERN] [--no-write]
"""

from __future__ import annotations

import argparse
import fnmatch
import io
import logging
import statistics
import sys
import time
import warnings
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout, suppress

import torch
from record import machine, markdown, save
from torch import Tensor, nn

from torchferry.capturer import capture
from torchferry.errors import CaptureError
from torchferry.observer import Observation

QUESTION = "What does a refusal cost, beside one call of torch.export?"
LIMIT = 2.5
Sets = list[tuple[Tensor]]


def convolutions() -> nn.Module:
    rows = [(nn.Conv2d(8, 8, 3, padding=1), nn.BatchNorm2d(8), nn.SiLU()) for _ in range(24)]
    first = [nn.Conv2d(3, 8, 3, 2), *(layer for row in rows for layer in row)]
    return nn.Sequential(*first, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 8))


class Attention(nn.Module):
    """A layer of a transformer."""

    def __init__(self) -> None:
        super().__init__()
        self.norms = nn.ModuleList(nn.LayerNorm(16) for _ in range(2))
        self.qkv, self.out = nn.Linear(16, 48), nn.Linear(16, 16)
        self.up, self.down = nn.Linear(16, 32), nn.Linear(32, 16)

    def forward(self, x: Tensor) -> Tensor:
        query, key, value = self.qkv(self.norms[0](x)).chunk(3, -1)
        x = x + self.out((query @ key.mT * 0.25).softmax(-1) @ value)
        return x + self.down(self.up(self.norms[1](x)).relu())


class Mean(nn.Module):
    """The mean over time."""

    def forward(self, x: Tensor) -> Tensor:
        return x.mean(1)


def attention() -> nn.Module:
    return nn.Sequential(*(Attention() for _ in range(16)), Mean(), nn.Linear(16, 8))


class End(nn.Module):
    """A network, and after it what no trace follows."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network
        self.heads = nn.ModuleList(nn.Linear(8, 4) for _ in range(8))
        self.names = {n: n * 0.5 for n in range(8)}


class ByOrder(End):
    """Sorts numbers in Python."""

    def forward(self, x: Tensor) -> Tensor:
        y = self.network(x)
        return y + torch.tensor(sorted(y.flatten().tolist())).reshape(y.shape)


class ByHead(End):
    """One of several heads, by a value."""

    def forward(self, x: Tensor) -> Tensor:
        y = self.network(x)
        return self.heads[int(y.mean(0).argmax())](y)


class ByTable(End):
    """Looks values up in a dictionary."""

    def forward(self, x: Tensor) -> Tensor:
        y = self.network(x)
        return y * torch.tensor([self.names[int(n)] for n in y.argmax(-1).tolist()])[:, None]


class ByExpert(End):
    """Calls the experts that values name."""

    def forward(self, x: Tensor) -> Tensor:
        y = self.network(x)
        chosen = y.argmax(-1)
        out = y.new_zeros(len(y), 4)
        for n in chosen.unique().tolist():
            out[chosen == n] = self.heads[n](y[chosen == n])
        return out


class ByText(End):
    """Computes with the text of a number."""

    def forward(self, x: Tensor) -> Tensor:
        y = self.network(x)
        return y * len(f"{y.abs().sum():.0f}")


NETWORKS: dict[str, tuple[Callable[[], nn.Module], Callable[[int], Tensor]]] = {
    "convolutions": (convolutions, lambda n: torch.randn(n, 3, 16 + 8 * n, 32)),
    "attention": (attention, lambda n: torch.randn(n, 4 + n, 16)),
}
ENDS = (ByOrder, ByHead, ByTable, ByExpert, ByText)


def refuse(model: nn.Module, sets: Sets) -> float:
    """CPU seconds until torchferry refuses a model."""
    start = time.process_time()
    try:
        capture(model, Observation.from_inputs(model, [(one, {}) for one in sets]), progress=False)
    except CaptureError:
        return time.process_time() - start
    raise SystemExit(f"{type(model).__name__} is not refused: it is no example")


def export(model: nn.Module, sets: Sets) -> float:
    """CPU seconds of torch.export, with the same dimensions dynamic."""
    (x,), (other,) = sets
    sizes = enumerate(zip(x.shape, other.shape, strict=True))
    dynamic = {axis: torch.export.Dim.DYNAMIC for axis, (size, one) in sizes if size != one}
    start = time.process_time()
    quiet = redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO())
    with suppress(Exception), quiet[0], quiet[1]:  # it shows the whole graph
        torch.export.export(model, (x,), dynamic_shapes=(dynamic,), strict=False)
    return time.process_time() - start


def measure(name: str, rounds: int) -> tuple[float, float]:
    """Median CPU seconds of a refusal and of torch.export."""
    network, end = name.split("/")
    make, inputs = NETWORKS[network]
    torch.manual_seed(0)
    model = next(one for one in ENDS if one.__name__ == end)(make()).eval().requires_grad_(False)
    sets = [(inputs(n),) for n in (2, 3)]
    pairs = [(refuse(model, sets), export(model, sets)) for _ in range(rounds + 1)][1:]
    ours, theirs = zip(*pairs, strict=True)
    return statistics.median(ours), statistics.median(theirs)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", default="*", metavar="PATTERN", help="models, as 'attention/*'")
    parser.add_argument("--no-write", action="store_true", help="only print the table")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    logging.disable(logging.CRITICAL)
    torch.set_num_threads(1)
    names = [f"{network}/{end.__name__}" for network in NETWORKS for end in ENDS]
    rows = {}
    for name in fnmatch.filter(names, options.only):
        rows[name] = measure(name, options.rounds)
        print(name, rows[name], rows[name][0] / rows[name][1], file=sys.stderr, flush=True)
    worst = max(ours / theirs for ours, theirs in rows.values())
    bar = f"{'pass' if worst <= LIMIT else 'FAIL'}: ≤ {LIMIT} times torch.export: {worst:.2f}"
    table = markdown(
        ("model", "refusal, CPU s", "torch.export, CPU s", "times"),
        [(name, f"{a:.2f}", f"{b:.2f}", f"{a / b:.2f}") for name, (a, b) in rows.items()],
        right=(1, 2, 3),
    )
    text = (
        f"{QUESTION} Models that no trace can follow. `python benchmarks/refuse.py`, medians of "
        f"{options.rounds} rounds in turn; {machine()}, torch {torch.__version__}.\n\n{bar}.\n\n"
        f"{table}"
    )
    print(text)
    if not options.no_write:
        data = {"question": QUESTION, "machine": machine(), "worst": worst, "rows": rows}
        save("refuse", data, text)
    return 0 if worst <= LIMIT else 1


if __name__ == "__main__":
    sys.exit(main())
