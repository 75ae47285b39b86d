"""Damaged, foreign and hostile files: every loader gives a result or one of our own errors.

Each damage is made from a seed. Files are read in processes with little time and memory of their
own: a crash, a hang or a huge allocation is a failure too.
"""

from __future__ import annotations

import json
import os
import random
import re
import resource
import shutil
import signal
import sys
import traceback
import warnings
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

import torchferry
from apart import run_apart
from torchferry.cli.commands.inspect import inspect
from torchferry.compiler import cache
from torchferry.config import read_config
from torchferry.converter import convert
from torchferry.dumper import open_dump, read_dump
from torchferry.errors import FerryError
from torchferry.graph import io, plot
from torchferry.graph.binding import bind_weights
from torchferry.sources.archive import load_program
from torchferry.sources.checkpoint import load_checkpoint, map_checkpoint

FAST, SLOW = 24, 300  # damages of each loader
SECONDS, MEMORY = 60, 2**31  # of one damage
Change = Callable[[bytes, random.Random], bytes]
Read = Callable[[Path], object]

# Damages ----------------------------------------------------------------------------------------


def flip(data: bytes, chance: random.Random) -> bytes:
    changed = bytearray(data)
    for _ in range(chance.choice([1, 1, 1, 4, 40])):
        changed[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
    return bytes(changed)


def truncate(data: bytes, chance: random.Random) -> bytes:
    return data[: chance.randrange(len(data))]


def swap(data: bytes, chance: random.Random) -> bytes:
    changed = bytearray(data)
    one, other = chance.randrange(len(data)), chance.randrange(len(data))
    changed[one], changed[other] = changed[other], changed[one]
    return bytes(changed)


def zero(data: bytes, chance: random.Random) -> bytes:
    start = chance.randrange(len(data))
    end = min(len(data), start + chance.choice([1, 8, 64, 4096]))
    return data[:start] + bytes(end - start) + data[end:]


def splice(data: bytes, chance: random.Random) -> bytes:
    start, end = sorted(chance.randrange(len(data)) for _ in range(2))
    at = chance.randrange(len(data))
    return data[:at] + data[start : min(end, start + 4096)] + data[at:]


def spoil_text(data: bytes, chance: random.Random) -> bytes:
    """Bytes that are no UTF-8 in the middle of a text."""
    texts = [*re.finditer(rb"[A-Za-z_.:/]{4,}", data)]
    if not texts:
        return flip(data, chance)
    place = chance.choice(texts).start() + chance.randrange(4)
    return data[:place] + chance.choice([b"\xff", b"\xc3", b"\x00", b"\x80"]) + data[place + 1 :]


def huge_number(data: bytes, chance: random.Random) -> bytes:
    """A varint, or digits, of 2**40 or more in the place of a byte."""
    digits = [*re.finditer(rb"\d+", data)]
    if digits and chance.random() < 0.5:
        found = chance.choice(digits)
        text = chance.choice([b"1099511627776", b"-1", b"9" * 400, b"18446744073709551616", b"0"])
        return data[: found.start()] + text + data[found.end() :]
    place = chance.randrange(len(data))
    return (
        data[:place]
        + chance.choice([b"\x80" * 5 + b"\x20", b"\xff" * 9 + b"\x01"])
        + (data[place + 1 :])
    )


def wrong_dimension(data: bytes, chance: random.Random) -> bytes:
    """Another number in the place of a small one, as sizes are."""
    places = [i for i, byte in enumerate(data[: 2**16]) if 0 < byte < 20]
    if not places:
        return flip(data, chance)
    place = chance.choice(places)
    return (
        data[:place]
        + bytes([chance.choice([0, 1, 127, byte_above(data[place])])])
        + (data[place + 1 :])
    )


def byte_above(byte: int) -> int:
    return byte + 1


def empty(data: bytes, chance: random.Random) -> bytes:
    return b""


def foreign(data: bytes, chance: random.Random) -> bytes:
    pointer = b"version https://git-lfs.github.com/spec/v1\n"
    other = [b"\0", b"{}", b"[]", b"null", b"PK\3\4" + bytes(90), b"\x80\x04\x95", b"hello " * 50]
    return chance.choice([pointer, *other])


CHANGES: tuple[Change, ...] = (
    flip, truncate, swap, zero, splice, spoil_text, huge_number, wrong_dimension,
    flip, spoil_text, huge_number, wrong_dimension, empty, foreign,
)  # fmt: skip


def replace_file(path: Path, chance: random.Random) -> str:
    """Put something else in the place of a file: a folder, a link, nothing."""
    content = path.read_bytes()
    path.unlink()
    kind = chance.choice(
        ["nothing", "folder", "loop", "dangling", "outside", "unreadable", "pipe"]
    )
    match kind:
        case "folder":
            path.mkdir()
        case "loop":
            path.symlink_to(path.name)
        case "dangling":
            path.symlink_to("not there")
        case "outside":
            elsewhere = path.parent.parent / f"elsewhere {path.name}"
            elsewhere.write_bytes(content)
            path.symlink_to(elsewhere)
        case "unreadable":
            path.write_bytes(content)
            path.chmod(0)
        case "pipe":
            os.mkfifo(path)
    return kind


def damage(folder: Path, seed: int) -> str:
    """Damage one file of a folder; say how."""
    chance = random.Random(seed)  # noqa: S311  # the same damage in every run
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    path = chance.choice(files)
    if seed % 7 == 6:
        return f"{path.name}: {replace_file(path, chance)}"
    change = CHANGES[seed % len(CHANGES)] if seed < 2 * len(CHANGES) else chance.choice(CHANGES)
    data = path.read_bytes()
    path.write_bytes(change(data, chance) if data else b"x")
    return f"{path.name}: {change.__name__}"


# Loaders ----------------------------------------------------------------------------------------


class Small(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = torch.nn.Linear(4, 90), torch.nn.Linear(90, 5)
        self.register_buffer("table", torch.arange(6))

    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        return {"y": self.second(self.first(x).relu()), "at": self.table + x.shape[0]}


INPUTS = (torch.ones(2, 4),)


def write_export(folder: Path) -> None:
    program = torch.export.export(
        Small(), INPUTS, dynamic_shapes=({0: torch.export.Dim("batch", min=1)},)
    )
    io.save(convert(program), folder / "model.onnx")


def write_dump(name: str, *, model: bool = False) -> Callable[[Path], None]:
    def write(folder: Path) -> None:
        if model:
            write_export(folder)
        with open_dump(folder / name) as dump:
            dump.add(("", 0, "I"), (INPUTS, {}))
            dump.add(("other", 0, "O"), {"cache": [torch.arange(3), "text", 7, {2.5: None}]})
            dump.add(("", 0, "O"), {"y": torch.ones(2, 5), "at": torch.arange(6) + 2})
            dump.add(("first", 0, "O"), torch.randn(2, 400))

    return write


def write_checkpoint(folder: Path) -> None:
    import transformers

    config = transformers.LlamaConfig(
        hidden_size=8, intermediate_size=16, num_hidden_layers=1, num_attention_heads=2,
        num_key_value_heads=1, vocab_size=32,
    )  # fmt: skip
    transformers.LlamaForCausalLM(config).save_pretrained(folder)


def write_program(folder: Path) -> None:
    torch.export.save(torch.export.export(Small(), INPUTS), folder / "model.pt2")


def write_weights(folder: Path) -> None:
    save_file(dict(Small().named_parameters()), folder / "model.safetensors", {"format": "pt"})
    assert load_file(folder / "model.safetensors")


def write_cache(folder: Path) -> None:
    model = torch.compile(Small(), backend=torchferry.onnx_custom_backend)
    with torch.no_grad():
        model(*INPUTS)
    for file in (read_config().cache_folder / "graphs").iterdir():
        shutil.copy(file, folder)


def load(folder: Path) -> object:
    return torchferry.load(folder)(*INPUTS)


def read_model(folder: Path) -> object:
    model = io.load(folder / "model.onnx")
    return [v.const_value.numpy().sum() for v in model.graph.initializers.values()]


def resave(folder: Path) -> None:
    io.save(torchferry.optimize(folder / "model.onnx"), folder / "again.onnx")


def compare_files(folder: Path) -> object:
    return torchferry.compare(folder / "model.onnx", folder / "model.onnx").ok


def compare_module(folder: Path) -> object:
    return torchferry.compare(Small(), folder / "model.onnx", INPUTS).ok


def inspect_file(name: str) -> Read:
    return lambda folder: inspect(folder / name)


def compare_dump(name: str) -> Read:
    def read(folder: Path) -> object:
        return torchferry.compare(folder / name, folder / "model.onnx").ok

    return read


def bind(folder: Path) -> object:
    with torch.device("meta"):
        module = Small()
    model = convert(torch.export.export(module, (torch.ones(2, 4, device="meta"),)))
    return bind_weights(model, folder)


def find_graphs(folder: Path) -> object:
    return [cache.find(file.stem) for file in folder.iterdir()]


LOADERS: dict[str, tuple[Callable[[Path], None], Read]] = {
    "load": (write_export, load),
    "graph.load": (write_export, read_model),
    "inspect a model": (write_export, inspect_file("model.onnx")),
    "draw": (write_export, lambda folder: plot.plot_dot(folder / "model.onnx")),
    "optimize": (write_export, resave),
    "compare": (write_export, compare_files),
    "compare with a module": (write_export, compare_module),
    "dump .onnx": (write_dump("d.onnx"), lambda folder: read_dump(folder / "d.onnx")),
    "dump .safetensors": (
        write_dump("d.safetensors"), lambda folder: read_dump(folder / "d.safetensors"),
    ),
    "dump folder": (write_dump("d"), lambda folder: read_dump(folder / "d")),
    "inspect a dump": (write_dump("d.onnx"), inspect_file("d.onnx")),
    "inspect a file of tensors": (write_dump("d.safetensors"), inspect_file("d.safetensors")),
    "compare with a dump": (
        write_dump("d.safetensors", model=True), compare_dump("d.safetensors"),
    ),
    "compare with an .onnx dump": (write_dump("d.onnx", model=True), compare_dump("d.onnx")),
    "checkpoint": (write_checkpoint, load_checkpoint),
    "mapped checkpoint": (write_checkpoint, map_checkpoint),
    "weights": (write_weights, bind),
    "program": (write_program, lambda folder: load_program(folder / "model.pt2")),
    "compiled graphs": (write_cache, find_graphs),
}  # fmt: skip


# Running them -----------------------------------------------------------------------------------


def attempt(read: Read, folder: Path, *, damaged: bool) -> str:
    """What comes of reading a folder: ``""`` if it is a result or an error of ours that speaks."""
    try:
        read(folder)
    except FerryError as error:
        text = str(error)
        if not damaged:
            return f"a file as it was written is refused: {text[:300]}"
        lines = text.count("\n") + 1
        return "" if len(text) > 20 and lines <= 12 and len(text) < 3000 else f"says: {text[:300]}"
    except Exception as error:  # noqa: BLE001  (what this looks for)
        last = traceback.extract_tb(error.__traceback__)[-4:]
        where = " < ".join(f"{Path(f.filename).name}:{f.lineno}" for f in reversed(last))
        return f"{type(error).__name__}: {str(error)[:150]} at {where}"
    return ""


def child(name: str, good: Path, work: Path, seeds: list[int], report: Path) -> None:
    """Read damaged copies; write what comes of each as a line."""
    read = LOADERS[name][1]
    warnings.simplefilter("ignore")
    pages = int(Path("/proc/self/statm").read_text().split()[0]) if sys.platform == "linux" else 0
    if pages:
        limit = pages * resource.getpagesize() + MEMORY
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    torch.set_num_threads(1)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
    with report.open("a") as stream:
        for seed in seeds:
            folder = work / f"{seed}" / "graphs"
            shutil.copytree(good, folder)
            how = damage(folder, seed) if seed >= 0 else "none"
            os.environ["TORCHFERRY_CACHE"] = str(folder.parent)
            stream.write(json.dumps([seed, how]) + "\n")
            stream.flush()
            signal.alarm(SECONDS)
            stream.write(json.dumps(attempt(read, folder, damaged=seed >= 0)) + "\n")
            stream.flush()
            signal.alarm(0)


def outcomes(name: str, tmp_path: Path, seeds: range) -> list[str]:
    """Damages of the files of a loader that end in anything but a result or an error of ours."""
    write = LOADERS[name][0]
    good, work, report = tmp_path / "good", tmp_path / "work", tmp_path / "report"
    good.mkdir()
    work.mkdir()
    torch.manual_seed(0)  # the same files in every run, and so the same damages
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        write(good)
    left, bad = [-1, *seeds], []
    while left:
        report.write_text("")
        status = run_apart(child, name, good, work, left, report)
        lines = [json.loads(line) for line in report.read_text().splitlines()]
        for (seed, how), text in zip(lines[::2], [*lines[1::2], None], strict=False):
            ended = f"the process ended: {status}" if text is None else text
            if ended:
                bad.append(f"seed {seed}, {how}: {ended}")
            left.remove(seed)
        if not lines:
            bad.append(f"nothing was read: {status}")
            break
        shutil.rmtree(work, ignore_errors=True)
        work.mkdir(exist_ok=True)
    return bad


@pytest.mark.parametrize("name", LOADERS)
def test_damaged_files(name: str, tmp_path: Path) -> None:
    assert outcomes(name, tmp_path, range(FAST)) == []


@pytest.mark.slow
@pytest.mark.parametrize("name", LOADERS)
def test_more_damaged_files(name: str, tmp_path: Path) -> None:
    assert outcomes(name, tmp_path, range(FAST, FAST + SLOW)) == []


@pytest.mark.parametrize("name", ["graph.load", "dump .onnx", "dump folder", "inspect a model"])
def test_names_that_are_not_text(name: str, tmp_path: Path) -> None:
    write, read = LOADERS[name]
    folder = Path(os.fsdecode(bytes(tmp_path) + b"/\xff\xfe folder"))
    folder.mkdir()
    write(folder)
    assert read(folder)
