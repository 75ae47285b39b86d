"""How long does torchferry take to start?

Measures, in fresh interpreters, what ``import torchferry`` adds to a bare interpreter and what
``torchferry --help`` costs as a whole. Writes start.json and its section of RESULTS.md beside
this file; exits 1 when a limit is passed.

    python benchmarks/start.py [--runs 15] [--no-write]
"""

from __future__ import annotations

import argparse
import resource
import statistics
import subprocess
import sys
import time
from dataclasses import asdict, dataclass

from record import machine, markdown, save

HELP = [sys.executable, "-m", "torchferry", "--help"]


@dataclass(frozen=True)
class Cost:
    """Milliseconds of one command over several runs: the best and the median."""

    wall_best: float
    wall_median: float
    cpu_best: float
    cpu_median: float

    def less(self, other: Cost) -> Cost:
        """What is left of this cost when the other is part of it."""
        pairs = zip(asdict(self).items(), asdict(other).values(), strict=True)
        return Cost(**{name: max(0.0, mine - theirs) for (name, mine), theirs in pairs})


@dataclass(frozen=True)
class Line:
    """One line of the result: what was measured, its cost, and the limit on one figure of it."""

    what: str
    cost: Cost
    figure: str = ""
    limit: float | None = None

    @property
    def passed(self) -> bool:
        """Whether the figure is below the limit, if there is one."""
        return self.limit is None or getattr(self.cost, self.figure) < self.limit

    @property
    def verdict(self) -> str:
        """The limit and whether it was kept, in words."""
        if self.limit is None:
            return ""
        kind = self.figure.replace("_", ", ")
        return f"{'pass' if self.passed else 'FAIL'}: {kind} < {self.limit:.0f} ms"


def once(command: list[str]) -> tuple[float, float]:
    """Wall and CPU milliseconds of one run. The command must exit 0."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    start = time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stdin=subprocess.DEVNULL)
    wall = time.perf_counter() - start
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = (after.ru_utime - before.ru_utime) + (after.ru_stime - before.ru_stime)
    return wall * 1000, cpu * 1000


def measure(commands: list[list[str]], runs: int) -> list[Cost]:
    """The commands in turn, so that a busy moment of the machine meets all of them alike."""
    for command in commands:
        once(command)  # writes the .pyc files and fills the file cache
    times = [[once(command) for command in commands] for _ in range(runs)]
    costs = []
    for each in zip(*times, strict=True):
        walls, cpus = zip(*each, strict=True)
        costs.append(
            Cost(min(walls), statistics.median(walls), min(cpus), statistics.median(cpus))
        )
    return costs


def measure_all(runs: int) -> list[Line]:
    bare, imported, shown = measure(
        [[sys.executable, "-c", ""], [sys.executable, "-c", "import torchferry"], HELP], runs
    )
    return [
        Line("bare interpreter", bare),
        Line(
            "import torchferry, less the bare interpreter", imported.less(bare), "wall_median", 50
        ),
        Line("torchferry --help, whole", shown, "cpu_median", 400),
    ]


def table(lines: list[Line]) -> str:
    head = ("what", "wall best", "wall median", "CPU best", "CPU median", "limit")
    rows = [(line.what, *figures(line.cost), line.verdict) for line in lines]
    return markdown(head, rows, right=(1, 2, 3, 4))


def figures(cost: Cost) -> tuple[str, ...]:
    return tuple(f"{value:.1f} ms" for value in asdict(cost).values())


def write(lines: list[Line], runs: int) -> None:
    """start.json, and the section of RESULTS.md."""
    question = "How long does torchferry take to start?"
    data = {
        "question": question,
        "machine": machine(),
        "runs": runs,
        "unit": "ms",
        "results": [
            {
                "what": line.what,
                **{name: round(value, 2) for name, value in asdict(line.cost).items()},
                "limit": line.limit,
                "limited": line.figure or None,
                "passed": line.passed,
            }
            for line in lines
        ],
    }
    told = f"`python benchmarks/start.py`, {runs} runs each, in turn"
    save("start", data, f"{question} {told}; {machine()}.\n\n{table(lines)}")


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--runs", type=int, default=15, help="fresh interpreters per command")
    parser.add_argument("--no-write", action="store_true", help="only print the table")
    options = parser.parse_args()
    try:
        lines = measure_all(options.runs)
    except subprocess.CalledProcessError as error:
        print(f"{' '.join(error.cmd)} exited {error.returncode}", file=sys.stderr)
        return 1
    print(table(lines))
    if not options.no_write:
        write(lines, options.runs)
    return 0 if all(line.passed for line in lines) else 1


if __name__ == "__main__":
    sys.exit(main())
