"""The other tools of `deploy.py`, and what is measured in a runtime or a process of its own."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

__all__ = [
    "PROMPT", "STEPS", "build_with_genai", "genai_file", "load_memory", "quantize_dynamic",
    "time_in_genai", "timed",
]  # fmt: skip

PROMPT, STEPS = 128, 16
BUILDER = "onnxruntime_genai.models.builder"


def build_with_genai(
    folder: Path, out: Path, *options: str, precision: str = "int4"
) -> tuple[Path | None, str]:
    """The graph of genai's builder and the time it took, in a process of its own."""
    if (out / "model.onnx").is_file():
        return out / "model.onnx", ""
    if importlib.util.find_spec("onnxruntime_genai") is None:
        return None, "onnxruntime-genai is not installed"
    command = [sys.executable, "-m", BUILDER, "-i", str(folder), "-o", str(out), "-p", precision]
    command += ["-e", "cpu", "-c", str(out / "cache")]
    command += ["--extra_options", *options] if options else []
    began = time.perf_counter()
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        return None, done.stderr.strip().splitlines()[-1][:200]
    return out / "model.onnx", f"{time.perf_counter() - began:.0f} s"


def quantize_dynamic(source: Path, target: Path) -> tuple[Path | None, str]:
    """The dynamic quantization of onnxruntime, with the operators named that it can take."""
    if target.is_file():
        return target, ""
    from onnxruntime.quantization import QuantType
    from onnxruntime.quantization import quantize_dynamic as run

    run(
        source, target, weight_type=QuantType.QInt8, per_channel=True,
        op_types_to_quantize=["MatMul", "Gemm", "Gather"], use_external_data_format=True,
        extra_options={"MatMulConstBOnly": True},
    )  # fmt: skip
    return target, ""


def timed(run: Callable[[], object]) -> float:
    began = time.perf_counter()
    run()
    return 1e3 * (time.perf_counter() - began)


ANON = """
import sys, onnxruntime
options = onnxruntime.SessionOptions()
options.intra_op_num_threads, options.log_severity_level = 1, 4
read = lambda: next(int(x.split()[1]) for x in open("/proc/self/status") if "RssAnon" in x)
before = read()
session = onnxruntime.InferenceSession(sys.argv[1], options, providers=["CPUExecutionProvider"])
print((read() - before) / 1024)
"""


def load_memory(path: Path) -> float:
    """MiB of memory of its own that a session takes, in a process of its own."""
    command = [sys.executable, "-c", ANON, str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return float(done.stdout)


def time_in_genai(
    folders: dict[str, tuple[Path, str]], rounds: int
) -> dict[str, tuple[float, float]]:
    """As `time_in_turn`, in genai: of folders, and which graph of each."""
    import onnxruntime_genai as genai

    models = {}
    for name, (folder, file) in folders.items():
        config = genai.Config(str(folder))
        threads = {"intra_op_num_threads": 1}
        decoder = {"session_options": threads} | ({"filename": file} if file else {})
        config.overlay(json.dumps({"model": {"decoder": decoder}}))
        models[name] = genai.Model(config)
    best = {name: [float("inf"), float("inf")] for name in models}
    for _ in range(rounds):
        for name, model in models.items():
            params = genai.GeneratorParams(model)
            longest = PROMPT + STEPS + 1
            params.set_search_options(max_length=longest, min_length=longest, do_sample=False)
            generator = genai.Generator(model, params)
            prompt = np.arange(100, 100 + PROMPT, dtype=np.int32)[None]
            took = timed(lambda g=generator, p=prompt: g.append_tokens(p))
            best[name][0] = min(best[name][0], took)
            for step in range(STEPS):
                took = timed(generator.generate_next_token)
                best[name][1] = min(best[name][1], took if step else float("inf"))
    return {name: (prefill, step) for name, (prefill, step) in best.items()}


def genai_file(folder: Path, path: Path) -> str:
    """The graph that genai runs of a deployed folder, below it: its own if there is one."""
    own = path.with_name(f"genai_{path.name}")
    return (own if own.is_file() else path).relative_to(folder).as_posix()
