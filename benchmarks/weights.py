"""What do weights cost an export: memory, bytes and time?

Copied: a model of 1 GiB is converted and saved; the memory beyond its own, and the time of saving
beside that of writing the same bytes raw, until they lie on the disk, in turn; torch.onnx beside
it with --peer. Referred to: a Llama configuration of 7 billion parameters, its weights zeros in
sparse safetensors files, is exported by `torchferry export --weights reference --no-verify`; peak
memory of that process, what of it a narrow model of as many layers needs not, and the bytes
written. Each measure is a process of its own. Writes weights.json and its section of RESULTS.md;
exits 1 when a bar is missed.

    python benchmarks/weights.py [--only copy|reference] [--peer] [--rounds 3] [--no-write]
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from record import machine, markdown, save

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("HF_HUB_OFFLINE", "1")

GIB = 2**30
WIDTH, LAYERS = 4096, 16  # 1 GiB of float32
SHARD = 5 * GIB  # what save_pretrained puts in one file
LLAMA_7B = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "dtype": "bfloat16",
    "hidden_size": 4096, "intermediate_size": 11008, "num_hidden_layers": 32,
    "num_attention_heads": 32, "num_key_value_heads": 32, "vocab_size": 32000,
    "max_position_embeddings": 4096, "rms_norm_eps": 1e-5, "tie_word_embeddings": False,
    "bos_token_id": 1, "eos_token_id": 2,
}  # fmt: skip
NARROW = {
    **LLAMA_7B, "hidden_size": 64, "intermediate_size": 96, "num_attention_heads": 4,
    "num_key_value_heads": 4, "vocab_size": 320,
}  # fmt: skip


@dataclass
class Line:
    """One measure; ``bar`` is the most that ``value`` may be, in the same unit."""

    what: str
    value: float
    unit: str
    bar: float | None = None
    note: str = ""

    @property
    def passed(self) -> bool:
        """Whether the bar is kept, where there is one."""
        return self.bar is None or self.value <= self.bar


# Copied ----------------------------------------------------------------------------------------


def peak() -> int:
    """The most memory that this process had resident so far, in bytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def ours(model: Any, args: tuple[Any, ...]) -> Callable[[Path], Any]:
    import torchferry as tf

    program = tf.to_onnx(model, args, dynamic_shapes=({0: "batch"},))
    return program.save


def by_torch(model: Any, args: tuple[Any, ...]) -> Callable[[Path], Any]:
    import torch

    batch = torch.export.Dim.DYNAMIC
    program = torch.onnx.export(
        model, args, dynamic_shapes=({0: batch},), dynamo=True, verbose=False
    )
    return lambda path: program.save(path, external_data=True)


def copied(exporter: str, rounds: int, folder: Path) -> dict[str, Any]:
    """Convert and save the model of 1 GiB, and write its bytes raw, in turn."""
    import torch

    export = {"ours": ours, "torch.onnx": by_torch}[exporter]
    args = (torch.rand(2, WIDTH),)
    small = torch.nn.Sequential(torch.nn.Linear(WIDTH, 8, bias=False))
    export(small, args)(folder / "small.onnx")  # imports and caches are not what is measured
    layers = [torch.nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(LAYERS)]
    model = torch.nn.Sequential(*layers)
    bytes_of = [p.detach().numpy().reshape(-1).view("uint8").data for p in model.parameters()]
    before = peak()
    save = export(model, args)
    _clear(folder)
    saving, raw = [], []
    for number in range(rounds):
        saving.append(_seconds(lambda: save(folder / "model.onnx"), folder))
        if number == 0:
            extra = peak() - before
        _clear(folder)
        raw.append(_seconds(lambda: _write(folder / "raw", bytes_of), folder))
        _clear(folder)
    return {"extra": extra, "saving": saving, "raw": raw, "bytes": sum(map(len, bytes_of))}


def _write(path: Path, parts: list[Any]) -> None:
    with path.open("wb") as stream:
        for part in parts:
            stream.write(part)


def _clear(folder: Path) -> None:
    """Remove what was written, so that nobody pays for another one's files."""
    for path in folder.iterdir():
        path.unlink()


def _seconds(action: Callable[[], Any], folder: Path) -> float:
    """Until what the action writes to the folder lies on the disk."""
    start = time.perf_counter()
    action()
    for path in folder.iterdir():
        with path.open("rb+") as stream:
            os.fsync(stream.fileno())
    return time.perf_counter() - start


def copy_lines(rounds: int, exporter: str) -> Iterator[Line]:
    with tempfile.TemporaryDirectory(prefix="torchferry-weights-") as folder:
        command = [sys.executable, __file__, "--child", exporter, folder, "--rounds", str(rounds)]
        told = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    found = json.loads(told.splitlines()[-1])
    bars = (5.0, 1.5) if exporter == "ours" else (None, None)
    size = found["bytes"]
    ratio = statistics.median(s / r for s, r in zip(found["saving"], found["raw"], strict=True))
    extra = 100 * found["extra"] / size
    title = f"{size / GIB:.2f} GiB copied by {exporter}"
    yield Line(f"{title}: memory beyond the model's", extra, "% of the weights", bars[0])
    note = f"{statistics.median(found['saving']):.2f} s"
    yield Line(f"{title}: time of saving", ratio, "x a raw write", bars[1], note)


# Referred to -----------------------------------------------------------------------------------


def write_checkpoint(folder: Path, config: dict[str, Any]) -> int:
    """A folder as ``save_pretrained`` makes it, with weights of zeros that take no disk.

    Returns:
        The bytes of the weights.
    """
    import torch
    import transformers

    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(config))
    with torch.device("meta"):
        model = transformers.LlamaForCausalLM(transformers.AutoConfig.from_pretrained(folder))
    shards: list[dict[str, Any]] = [{}]
    filled, total = 0, 0
    for name, tensor in model.state_dict().items():
        size = tensor.numel() * 2
        if filled + size > SHARD:
            shards.append({})
            filled = 0
        shards[-1][name] = {
            "dtype": "BF16", "shape": list(tensor.shape), "data_offsets": [filled, filled + size],
        }  # fmt: skip
        filled, total = filled + size, total + size
    places = {}
    for number, shard in enumerate(shards, 1):
        name = f"model-{number:05}-of-{len(shards):05}.safetensors"
        header = json.dumps({"__metadata__": {"format": "pt"}, **shard}).encode()
        header = header.ljust(-(-len(header) // 8) * 8)
        with (folder / name).open("wb") as stream:
            stream.write(len(header).to_bytes(8, "little") + header)
            stream.truncate(8 + len(header) + max(t["data_offsets"][1] for t in shard.values()))
        places |= dict.fromkeys(shard, name)
    index = {"metadata": {"total_size": total}, "weight_map": places}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    return total


def exported(folder: Path, out: Path) -> tuple[int, float]:
    """Peak memory in bytes and seconds of the command, in a process of its own."""
    command = [
        sys.executable, "-m", "torchferry", "export", str(folder), "-o", str(out),
        "--weights", "reference", "--no-verify",
    ]  # fmt: skip
    start = time.perf_counter()
    with (folder / "told").open("w+") as told:
        process = subprocess.Popen(command, stdout=told, stderr=subprocess.STDOUT)
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        told.seek(0)
        text = " ".join(told.read().split())
    if process.returncode:
        raise SystemExit(text)
    if "NOT VERIFIED" not in text:
        raise SystemExit(f"the report hides that nothing was verified: {text}")
    return used.ru_maxrss * 1024, time.perf_counter() - start


def reference_lines() -> Iterator[Line]:
    with tempfile.TemporaryDirectory(prefix="torchferry-weights-") as name:
        folder = Path(name)
        write_checkpoint(folder / "narrow", NARROW)
        least, _ = exported(folder / "narrow", folder / "narrow-out")
        size = write_checkpoint(folder / "llama", LLAMA_7B)
        most, seconds = exported(folder / "llama", folder / "llama-out")
        files = list((folder / "llama-out").iterdir())
        written = sum(path.stat().st_size for path in files if path.stat().st_nlink == 1)
    title = f"Llama 7B, {size / GIB:.1f} GiB referred to"
    yield Line(f"{title}: peak memory", most / 1e9, "GB", 3.0, f"{seconds:.0f} s")
    extra = 100 * (most - least) / size
    yield Line(f"{title}: memory beyond a narrow model's", extra, "% of the weights", 5.0)
    note = f"{written / 2**20:.1f} MiB"
    yield Line(f"{title}: bytes written", 100 * written / size, "% of the weights", 1.0, note)


# -----------------------------------------------------------------------------------------------


def table(lines: list[Line]) -> str:
    rows = []
    for line in lines:
        verdict = "pass" if line.passed else "FAIL"
        bar = "" if line.bar is None else f"{verdict}: ≤ {line.bar:g}"
        rows.append((line.what, f"{line.value:.2f} {line.unit}", bar, line.note))
    return markdown(("what", "", "bar", ""), rows, right=(1,))


def write(lines: list[Line], rounds: int) -> None:
    import torch

    told = (
        "What do weights cost an export? `python benchmarks/weights.py`, each measure in a "
        f"process of its own, {rounds} rounds of saving and raw writing in turn, medians; "
        f"{machine()}, torch {torch.__version__}."
    )
    save("weights", [asdict(line) for line in lines], f"{told}\n\n{table(lines)}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", choices=["copy", "reference"])
    parser.add_argument("--peer", action="store_true", help="torch.onnx too")
    parser.add_argument("--no-write", action="store_true")
    parser.add_argument("--child", nargs=2, metavar=("EXPORTER", "FOLDER"), help="one measure")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    if options.child:
        exporter, folder = options.child
        print(json.dumps(copied(exporter, options.rounds, Path(folder))))
        return 0
    lines: list[Line] = []
    if options.only != "reference":
        for exporter in ["ours", *["torch.onnx"] * options.peer]:
            lines += copy_lines(options.rounds, exporter)
    if options.only != "copy":
        lines += reference_lines()
    print(table(lines))
    if not options.no_write:
        write(lines, options.rounds)
    return 0 if all(line.passed for line in lines) else 1


if __name__ == "__main__":
    sys.exit(main())
