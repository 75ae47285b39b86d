"""How fast is a dump, against a plain copy of the same bytes?

Writes tensors with open_dump in each format and copies as many bytes, in turn: one file for the
formats of one file, a folder of as many files for the folder. The rate of a dump, checksums
included, is told as a ratio to that of the copy of the same round. Writes
dump.json and its section of RESULTS.md beside this file; exits 1 when a ratio is below the bar.

    python benchmarks/dump.py [--runs 15] [--mib 256] [--folder DIR] [--no-write]
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
from record import machine, markdown, save

from torchferry.dumper import open_dump

FORMATS = {".onnx": "dump.onnx", ".safetensors": "dump.safetensors", "folder": "dump"}
COPY, COPIES = "shutil.copyfile", "shutil.copytree"
CALL_MIB = 4  # tensors of one call, as 1024 hidden at 1024 tokens
BAR = 0.80


@dataclass(frozen=True)
class Line:
    """One line of the result: MiB/s, and the ratio to the copy of the same round."""

    what: str
    rate: float
    ratio: float | None = None

    @property
    def passed(self) -> bool:
        """Whether the ratio is not below the bar."""
        return self.ratio is None or self.ratio >= BAR

    @property
    def verdict(self) -> str:
        """The bar and whether it was kept, in words."""
        if self.ratio is None:
            return ""
        return f"{'pass' if self.passed else 'FAIL'}: ratio ≥ {BAR:.2f}"


def seconds(action: Callable[[], object]) -> float:
    start = time.perf_counter()
    action()
    return time.perf_counter() - start


def write_dump(path: Path, calls: list[torch.Tensor]) -> None:
    with open_dump(path) as dump:
        for number, tensor in enumerate(calls):
            dump.add(("model.layers.0", number, "O"), tensor)


def clear(folder: Path) -> None:
    """Files that are there already would be written faster, or slower."""
    for file in folder.iterdir():
        if file.is_dir() and file.name != "sources":
            shutil.rmtree(file)
        elif file.is_file() and file.name != "source":
            file.unlink()


def measure(folder: Path, mib: int, runs: int) -> list[Line]:
    """Copy and formats in turn, so that a busy moment of the machine meets all of them alike."""
    calls = [torch.randn(CALL_MIB * 2**18) for _ in range(mib // CALL_MIB)]
    source = folder / "source"
    sources = folder / "sources"
    sources.mkdir(exist_ok=True)
    with source.open("wb") as stream:
        for number, tensor in enumerate(calls):
            stream.write(tensor.numpy().tobytes())
            (sources / f"{number:06d}").write_bytes(tensor.numpy().tobytes())
    actions: dict[str, Callable[[], object]] = {
        COPY: lambda: shutil.copyfile(source, folder / "copy"),
        COPIES: lambda: shutil.copytree(sources, folder / "copies"),
    }
    for name, file in FORMATS.items():
        actions[name] = lambda path=folder / file: write_dump(path, calls)
    times: dict[str, list[float]] = {name: [] for name in actions}
    for run in range(runs + 1):
        for name, action in actions.items():
            os.sync()  # or what the last one left to be written would slow this one
            taken = seconds(action)
            if run:  # the first round fills the file cache and starts the threads
                times[name].append(taken)
            clear(folder)
    lines = [Line(name, mib / statistics.median(times[name])) for name in (COPY, COPIES)]
    for name in FORMATS:
        copies = times[COPIES if name == "folder" else COPY]
        ratios = [copy / dump for copy, dump in zip(copies, times[name], strict=True)]
        rate = mib / statistics.median(times[name])
        lines.append(Line(f"open_dump, {name}", rate, statistics.median(ratios)))
    return lines


def table(lines: list[Line]) -> str:
    rows = [
        (
            line.what,
            f"{line.rate:.0f} MiB/s",
            "" if line.ratio is None else f"{line.ratio:.2f}",
            line.verdict,
        )
        for line in lines
    ]
    return markdown(("what", "rate", "ratio to the copy", "bar"), rows, right=(1, 2))


def write(lines: list[Line], mib: int, runs: int) -> None:
    """dump.json, and the section of RESULTS.md."""
    question = "How fast is a dump, against a plain copy of the same bytes?"
    data = {
        "question": question,
        "machine": machine(),
        "runs": runs,
        "unit": "MiB/s",
        "mib": mib,
        "results": [
            {
                "what": line.what,
                "rate": round(line.rate),
                "ratio": line.ratio and round(line.ratio, 3),
                "bar": None if line.ratio is None else BAR,
                "passed": line.passed,
            }
            for line in lines
        ],
    }
    told = f"`python benchmarks/dump.py`, {mib} MiB in calls of {CALL_MIB} MiB, {runs} runs each"
    save("dump", data, f"{question} {told}, in turn, medians; {machine()}.\n\n{table(lines)}")


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--runs", type=int, default=15, help="rounds of copy and dumps")
    parser.add_argument("--mib", type=int, default=256, help="MiB of tensors")
    parser.add_argument("--folder", type=Path, help="where to write; a temporary folder if absent")
    parser.add_argument("--no-write", action="store_true", help="only print the table")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        lines = measure(Path(folder), options.mib, options.runs)
    print(table(lines))
    if not options.no_write:
        write(lines, options.mib, options.runs)
    return 0 if all(line.passed for line in lines) else 1


if __name__ == "__main__":
    sys.exit(main())
