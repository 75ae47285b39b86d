"""
Make it fast
============

Four things decide the speed of a model in onnxruntime: which operators the graph has, how many
threads run it, the number type, and how it is called. This page measures the first two and shows
where the others are.
"""

# %%
# A model to measure
# ------------------

import time
from statistics import median

import onnxruntime
import torch

import torchferry as tf

torch.manual_seed(0)
layer = torch.nn.TransformerEncoderLayer(128, 4, 256, batch_first=True, activation="gelu")
model = torch.nn.TransformerEncoder(layer, 2, enable_nested_tensor=False).eval()
sets = [(torch.rand(1, 32, 128),), (torch.rand(2, 48, 128),)]

# %%
# Choose the target
# -----------------
# ``target="onnx"`` keeps to standard operators: every runtime reads the file.
# ``target="onnxruntime"`` fuses attention, GELU and normalization into operators that
# onnxruntime has kernels for.

plain = tf.export(model, sets)
fused = tf.export(model, sets, target="onnxruntime")
for name, program in (("onnx", plain), ("onnxruntime", fused)):
    print(f"{name:12} {len(program.model.graph):3} nodes  {program.report.verdict}")

# %%
# Measure in turn
# ---------------
# A shared machine is noisy. Run the candidates in turn, many times, and take medians: then other
# load hits all of them alike.


def seconds(candidates, rounds=40):
    """The median time of a call of each."""
    times = {name: [] for name in candidates}
    for _ in range(rounds):
        for name, call in candidates.items():
            start = time.perf_counter()
            call()
            times[name].append(time.perf_counter() - start)
    return {name: median(values) for name, values in times.items()}


x = sets[0][0]
with torch.no_grad():
    measured = seconds(
        {"eager": lambda: model(x), "onnx": lambda: plain(x), "onnxruntime": lambda: fused(x)}
    )
for name, value in measured.items():
    print(f"{name:12} {1000 * value:6.2f} ms  {measured['eager'] / value:4.2f} x")

# %%
# Which rewrite did what
# ----------------------
# `optimize` rewrites any ONNX model, also those of torch.onnx and optimum. ``verbose=1`` logs
# what was applied; a rule is left out by name, as in ``default+onnxruntime-SkipLayerNorm``.
# :doc:`/reference/rules` lists all of them with the gain that was measured.

raw = tf.to_onnx(model, sets[0])
print(len(raw.model.graph), "nodes as converted")
small = tf.optimize(raw.model, tf.OptimizationOptions("default+onnxruntime").patterns)
print(len(small.graph), "nodes after the rewrites")

# %%
# Threads and profiling
# ---------------------
# onnxruntime takes as many threads as there are cores. For small models one thread is often
# faster; for a server with several sessions, divide the cores. Its own profiler says where the
# time goes.

import json
import tempfile
from collections import Counter
from pathlib import Path

folder = Path(tempfile.mkdtemp())
fused.save(folder / "fused.onnx")
options = onnxruntime.SessionOptions()
options.intra_op_num_threads = 1
options.enable_profiling = True
options.profile_file_prefix = str(folder / "profile")
session = onnxruntime.InferenceSession(str(folder / "fused.onnx"), options)
for _ in range(20):
    session.run(None, {session.get_inputs()[0].name: x.numpy()})
events = json.loads(Path(session.end_profiling()).read_text("utf-8"))
spent = Counter()
for event in events:
    if event.get("cat") == "Node" and event["name"].endswith("kernel_time"):
        spent[event["args"]["op_name"]] += event["dur"]
print(spent.most_common(6))

# %%
# Fewer bits
# ----------
# ``--dtype fp16`` (or ``model.half()``) halves the weights; on CPUs onnxruntime computes most of
# float16 in float32, so it saves memory, not time. Weights of modules that are quantized already
# (int4 of bitsandbytes, GPTQ, AWQ, torchao) stay packed in the ONNX file and run as
# ``MatMulNBits``. A folder that GPTQ or AWQ packed is read as float32; ``torchferry deploy``
# keeps its grid.
#
# Fewer copies
# ------------
# A call of a program copies nothing that is a CPU tensor in C order. A loop over tokens should
# keep the cache in the tensors that the program returned, as in :doc:`/auto_guides/g02_llm`.
