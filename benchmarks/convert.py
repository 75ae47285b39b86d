"""What does a conversion cost beside torch.export, ours and torch.onnx's?

Each round exports a model with torch.export alone, then captures and converts it with torchferry,
then with torch.onnx.export; CPU time of one thread, medians, as ratios to torch.export. Also the
nodes before any optimization, and the time of a lowering per FX node. Writes convert.json and its
section of RESULTS.md; exits 1 when a bar is missed.

    python benchmarks/convert.py [--rounds 3] [--only llama] [--no-peer] [--no-write]
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import time
import warnings
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch
from record import machine, markdown, save

import torchferry as tf
from torchferry.converter.translate import translate
from torchferry.values.flatten import register_pytrees

RATIO, PER_NODE = 1.3, 0.3
NODES = 199  # yet-another-onnx-builder's of 2 layers of Llama without patterns
COUNTED = "llama, 2 layers"
DYNAMIC = torch.export.Dim.DYNAMIC


@dataclass
class Model:
    """A model, its inputs, and which axes of them are dynamic."""

    module: torch.nn.Module
    kwargs: dict[str, Any]
    shapes: dict[str, Any]


@dataclass
class Line:
    """Medians of CPU seconds, and counts."""

    model: str
    export: float
    ours: float
    peer: float | None
    convert_per_node: float  # ms
    fx_nodes: int
    nodes: int  # before any optimization
    peer_nodes: int | None  # after torch.onnx's

    @property
    def ratio(self) -> float:
        """Of our whole export to torch.export alone."""
        return self.ours / self.export

    @property
    def passed(self) -> bool:
        """Whether both bars of time are kept, and that of nodes where there is one."""
        few = self.nodes < min(NODES, self.peer_nodes or NODES) if self.model == COUNTED else True
        return self.ratio <= RATIO and self.convert_per_node <= PER_NODE and few


def llama(layers: int) -> Model:
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        hidden_size=256, intermediate_size=512, num_hidden_layers=layers, vocab_size=1000,
        num_attention_heads=8, num_key_value_heads=4,
    )  # fmt: skip
    batch, new, past = 2, 3, 5
    cache = [(torch.randn(batch, 4, past, 32), torch.randn(batch, 4, past, 32))] * layers
    kwargs = {
        "input_ids": torch.randint(0, 1000, (batch, new)),
        "attention_mask": torch.ones(batch, past + new, dtype=torch.int64),
        "position_ids": torch.arange(past, past + new).expand(batch, new),
        "cache": tf.make_dynamic_cache([(k.clone(), v.clone()) for k, v in cache]),
    }
    axes = {0: DYNAMIC, 2: DYNAMIC}
    shapes: dict[str, Any] = {name: {0: DYNAMIC, 1: DYNAMIC} for name in kwargs}
    shapes["cache"] = [[axes] * layers, [axes] * layers]
    return Model(LlamaForCausalLM(config).eval(), kwargs, shapes)


def bert() -> Model:
    from transformers import BertConfig, BertModel

    config = BertConfig(
        hidden_size=128, num_hidden_layers=4, num_attention_heads=4, intermediate_size=256
    )
    ids = torch.randint(0, 1000, (2, 7))
    kwargs = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
    return Model(
        BertModel(config).eval(), kwargs, {name: {0: DYNAMIC, 1: DYNAMIC} for name in kwargs}
    )


def vit() -> Model:
    from transformers import ViTConfig, ViTModel

    config = ViTConfig(
        hidden_size=128, num_hidden_layers=4, num_attention_heads=4, intermediate_size=256,
        image_size=64, patch_size=16,
    )  # fmt: skip
    kwargs = {"pixel_values": torch.randn(2, 3, 64, 64)}
    return Model(ViTModel(config).eval(), kwargs, {"pixel_values": {0: DYNAMIC}})


def resnet() -> Model:
    from transformers import ResNetConfig, ResNetModel

    config = ResNetConfig(hidden_sizes=[32, 64], depths=[2, 2], embedding_size=32)
    kwargs = {"pixel_values": torch.randn(2, 3, 64, 48)}
    return Model(
        ResNetModel(config).eval(), kwargs, {"pixel_values": {0: DYNAMIC, 2: DYNAMIC, 3: DYNAMIC}}
    )


MODELS: dict[str, Callable[[], Model]] = {
    "llama, 1 layer": lambda: llama(1),
    COUNTED: lambda: llama(2),
    "llama, 4 layers": lambda: llama(4),
    "llama, 16 layers": lambda: llama(16),
    "BERT, 4 layers": bert,
    "ViT, 4 layers": vit,
    "ResNet": resnet,
}


def seconds(action: Callable[[], Any]) -> tuple[float, Any]:
    start = time.process_time()
    result = action()
    return time.process_time() - start, result


def exported(model: Model) -> torch.export.ExportedProgram:
    oblivious = torch.fx.experimental._config.patch(backed_size_oblivious=True)
    with torch.no_grad(), oblivious:
        return torch.export.export(
            model.module, (), model.kwargs, dynamic_shapes=model.shapes, strict=False
        )


def by_us(model: Model) -> tf.OnnxProgram:
    return tf.to_onnx(model.module, (), model.kwargs, dynamic_shapes=model.shapes)


def by_torch(model: Model) -> Any:
    return torch.onnx.export(
        model.module, (), kwargs=model.kwargs, dynamic_shapes=model.shapes, dynamo=True,
        verbose=False,
    )  # fmt: skip


def measure(name: str, model: Model, rounds: int, *, peer: bool) -> Line:
    register_pytrees()  # of the library that the model has imported
    exported(model), by_us(model)  # imports and caches are not what is measured
    alone, ours, theirs, converting = [], [], [], []
    program = exported(model)
    for _ in range(rounds):
        alone.append(seconds(lambda: exported(model))[0])
        spent, made = seconds(lambda: by_us(model))
        ours.append(spent)
        converting.append(seconds(lambda: translate(program, 20))[0])
        if peer:
            spent, other = seconds(lambda: by_torch(model))
            theirs.append(spent)
    fx_nodes = len(program.graph.nodes)
    return Line(
        name, statistics.median(alone), statistics.median(ours),
        statistics.median(theirs) if theirs else None,
        statistics.median(converting) * 1e3 / fx_nodes, fx_nodes, len(made.model.graph),
        len(other.model.graph) if theirs else None,
    )  # fmt: skip


def table(lines: list[Line]) -> str:
    head = ("model", "torch.export", "ours, whole", "torch.onnx", "ms per FX node", "FX nodes",
            "nodes", "torch.onnx's, optimized", "bar")  # fmt: skip
    rows = []
    for line in lines:
        peer = "" if line.peer is None else f"{line.peer / line.export:.2f}x"
        verdict = "pass" if line.passed else "FAIL"
        bar = f"{verdict}: ≤ {RATIO}x, ≤ {PER_NODE} ms"
        bar += f", < {NODES} nodes and torch.onnx's" if line.model == COUNTED else ""
        rows.append(
            (line.model, f"{line.export:.2f} s", f"{line.ratio:.2f}x", peer,
             f"{line.convert_per_node:.3f}", f"{line.fx_nodes}", f"{line.nodes}",
             "" if line.peer_nodes is None else f"{line.peer_nodes}", bar)
        )  # fmt: skip
    return markdown(head, rows, right=range(1, 8))


def write(lines: list[Line], rounds: int) -> None:
    told = (
        "What does a conversion cost beside torch.export? `python benchmarks/convert.py`, "
        f"{rounds} rounds in turn, CPU time of one thread, medians, as ratios to torch.export "
        f"alone; {machine()}, torch {torch.__version__}."
    )
    save("convert", [asdict(line) for line in lines], f"{told}\n\n{table(lines)}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", default="", help="a part of the models' names")
    parser.add_argument("--no-peer", action="store_true", help="leave torch.onnx out")
    parser.add_argument("--no-write", action="store_true")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    lines = []
    for name, build in MODELS.items():
        if options.only in name:
            lines.append(measure(name, build(), options.rounds, peer=not options.no_peer))
            print(table(lines[-1:]).splitlines()[-1], flush=True)
    print(table(lines))
    if not options.no_write:
        write(lines, options.rounds)
    return 0 if all(line.passed for line in lines) else 1


if __name__ == "__main__":
    sys.exit(main())
