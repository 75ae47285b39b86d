"""Does compare name the ONNX node that is at fault?

A fault is planted in a random node of an exported model: a weight scaled by 1.01, an ``axis`` or
an epsilon changed, or a result rounded to float16 and back. Only faults that onnxruntime shows to
change the model's outputs count. `compare` is to name that node as the first divergence, from the
program and the file alone. So it is, with one fault for each model in turn, in files that
torch.onnx and the TorchScript exporter wrote, the latter of the model inside another; beside the
captured program, and beside the module in eager mode. The models are small ones of the zoo with
random weights. Writes planted_nodes.json and its section of RESULTS.md beside this file; exits 1
when a node is missed.

    python benchmarks/planted_nodes.py [--no-write] [--seed 0] [MODEL ...]
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial

import numpy as np
import onnx_ir as ir
import torch
from record import machine, markdown, save
from torch.export import ExportedProgram

from torchferry.capturer import capture
from torchferry.comparer import compare
from torchferry.comparer.run.feeds import model_feeds
from torchferry.comparer.run.piece import Runner, ort_value, tensor_of_ort
from torchferry.converter import convert
from torchferry.converter.torch_onnx import Flat, export_program, export_script
from torchferry.errors import ConversionError, RunError
from torchferry.observer import Observation
from torchferry.sources.source import load_source
from torchferry.values.clone import clone
from torchferry.values.difference import max_diff

QUESTION = "Does compare name the ONNX node that is at fault?"
MODELS = (
    "mlp", "lstm", "tiny-bert", "tiny-llm", "tiny-resnet", "tiny-vit", "gpt2", "llama", "qwen2",
    "gemma2", "t5", "bart", "distilbert", "unet", "convnext", "swin", "clip", "whisper", "dlrm",
    "segformer",
)  # fmt: skip
VISIBLE = 1e-3  # how much of its scale an output must change


@dataclass(frozen=True)
class Line:
    """One fault: where it was planted, and what was named."""

    file: str
    against: str
    model: str
    fault: str
    planted: str
    named: str
    right: bool
    seconds: float


# Faults: each changes the model in place and tells the name of the value whose node is at fault --


def perturb_weight(model: ir.Model, draw: random.Random) -> str | None:
    """Scale a weight of one node by 1.01."""
    users = [
        (node, index)
        for node in model.graph
        for index, value in enumerate(node.inputs)
        if value is not None and value.is_initializer() and value.const_value is not None
        and value.dtype == ir.DataType.FLOAT and value.const_value.size > 1
    ]  # fmt: skip
    if not users:
        return None
    node, index = draw.choice(users)
    array = node.inputs[index].const_value.numpy() * np.float32(1.01)
    changed = ir.Value(name=f"{node.inputs[index].name}_changed", const_value=ir.tensor(array))
    changed.type, changed.shape = ir.TensorType(ir.DataType.FLOAT), ir.Shape(array.shape)
    model.graph.register_initializer(changed)
    node.replace_input_with(index, changed)
    return node.outputs[0].name


def change_axis(model: ir.Model, draw: random.Random) -> str | None:
    """Let an operator work along the axis before the last, or after it."""
    nodes = [n for n in model.graph if n.op_type in ("Softmax", "Concat", "Gather", "Split")
             and "axis" in n.attributes]  # fmt: skip
    nodes += [n for n in model.graph if n.op_type == "LayerNormalization"]
    if not nodes:
        return None
    node = draw.choice(nodes)
    axis = node.attributes["axis"].as_int() if "axis" in node.attributes else -1
    node.attributes["axis"] = ir.AttrInt64("axis", axis - 1 if axis != 0 else 1)
    return node.outputs[0].name


def change_epsilon(model: ir.Model, draw: random.Random) -> str | None:
    """Make the epsilon of a normalization 0.1; of one in single operators, what it adds."""
    nodes = [n for n in model.graph if "epsilon" in n.attributes]
    small = [
        (node, index)
        for node in model.graph
        for index, value in enumerate(node.inputs)
        if node.op_type == "Add" and value is not None and value.const_value is not None
        and value.const_value.size == 1 and 0 < value.const_value.numpy().item() < 1e-4
    ]  # fmt: skip
    if not nodes and not small:
        return None
    if nodes:
        node = draw.choice(nodes)
        node.attributes["epsilon"] = ir.AttrFloat32("epsilon", 0.1)
        return node.outputs[0].name
    node, index = draw.choice(small)
    changed = ir.Value(name=f"{node.name}_epsilon", const_value=ir.tensor(np.float32(0.1)))
    changed.type, changed.shape = ir.TensorType(ir.DataType.FLOAT), ir.Shape([])
    model.graph.register_initializer(changed)
    node.replace_input_with(index, changed)
    return node.outputs[0].name


def round_to_half(model: ir.Model, draw: random.Random) -> str | None:
    """Round what a node computes to float16 and back."""
    inner = [
        node for node in model.graph
        if node.outputs and node.outputs[0].dtype == ir.DataType.FLOAT and node.outputs[0].uses()
        and node.op_type in ("MatMul", "Gemm", "Add", "Mul", "Conv", "LayerNormalization", "Gelu")
        and not node.outputs[0].is_graph_output()
    ]  # fmt: skip
    if not inner:
        return None
    node = draw.choice(inner)
    value, name = node.outputs[0], node.outputs[0].name
    users = list(value.uses())
    down = ir.node("Cast", [value], {"to": ir.DataType.FLOAT16}, name=f"{node.name}_down")
    up = ir.node("Cast", [down.outputs[0]], {"to": ir.DataType.FLOAT}, name=f"{node.name}_up")
    for use, index in users:
        use.replace_input_with(index, up.outputs[0])
    model.graph.insert_after(node, [down, up])
    value.name, down.outputs[0].name, up.outputs[0].name = f"{name}_32", f"{name}_16", name
    for cast in (down, up):
        cast.metadata_props.update(node.metadata_props)
    return name


FAULTS: dict[str, Callable[[ir.Model, random.Random], str | None]] = {
    "weight x 1.01": perturb_weight,
    "axis": change_axis,
    "epsilon": change_epsilon,
    "Cast to float16": round_to_half,
}
LIMITS = {"Cast to float16": 1e-5}  # of VISIBLE: half precision is what it is


def main() -> int:
    parser = argparse.ArgumentParser(description=QUESTION)
    parser.add_argument("models", nargs="*", default=list(MODELS))
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--no-write", action="store_true")
    options = parser.parse_args()
    lines: list[Line] = []
    for number, name in enumerate(options.models):
        lines += try_model(name, options.seed, number)
    section = table(lines)
    print(section)
    if not options.no_write:
        write(lines, section)
    return 0 if all(line.right for line in lines) else 1


def try_model(name: str, seed: int, number: int) -> list[Line]:
    source = load_source(f"zoo:{name}")
    module = source.model.eval()
    seen = Observation.from_inputs(module, source.input_sets)
    program = capture(module, seen).program
    call = seen.normalized(seen.calls[0])
    tried = Tried(name, call, seed)
    lines = []
    for fault in FAULTS:
        lines += tried.line("torchferry", lambda: convert(program), fault, program)
    written = written_by_others(module, program, seen)
    for file, make in written.items():
        for against in ("program", "eager"):
            number += 1
            lines += tried.line(file, make, [*FAULTS][number % len(FAULTS)], module, against)
    return lines


def written_by_others(
    module: torch.nn.Module, program: ExportedProgram, seen: Observation
) -> dict[str, Callable[[], ir.Model]]:
    """How each makes its file; those that cannot, or return more, are left out."""
    flat = Flat(module, clone(seen.normalized(seen.calls[0])))
    count = len(flat(*clone(flat.tensors)))
    dynamic = seen.map_axes(lambda *_: True)
    axes = {
        f"input_{index}": {axis: f"input_{index}_{axis}" for axis in dynamic.get(path, ())}
        for index, (path, _) in enumerate(flat.places)
    }
    ways = {
        "torch.onnx": lambda: export_program(program, 20, optimize=True),
        "TorchScript": lambda: export_script(flat, [*axes], axes, 18),
    }
    found = {}
    for file, make in ways.items():
        try:
            made = make()
        except ConversionError as error:
            print(f"{type(module).__name__}, {file}: {error}", file=sys.stderr)
            continue
        if len(made.graph.outputs) == count:
            found[file] = partial(ir.from_proto, ir.to_proto(made))
        else:
            print(f"{type(module).__name__}, {file}: other outputs", file=sys.stderr)
    return found


@dataclass(frozen=True)
class Tried:
    """A model of the zoo and a call of it."""

    name: str
    call: tuple[tuple[object, ...], dict[str, object]]
    seed: int

    def line(
        self,
        file: str,
        make: Callable[[], ir.Model],
        fault: str,
        reference: ExportedProgram | torch.nn.Module,
        against: str = "program",
    ) -> list[Line]:
        """Plant a fault and find it; nothing where there is no place for it."""
        draw = random.Random(f"{self.name} {fault} {self.seed}")
        found = planted(make, self.call, FAULTS[fault], draw, LIMITS.get(fault, VISIBLE))
        if found is None:
            return []
        model, value, nodes = found
        started = time.perf_counter()
        compared = compare(reference, model, self.call, feed="torch", against=against)
        seconds = time.perf_counter() - started
        named = ", ".join(compared.suspects)
        right = set(compared.suspects) == nodes
        where = f"{', '.join(sorted(nodes))} → {value}"
        return [Line(file, against, self.name, fault, where, named, right, seconds)]


def planted(
    make: Callable[[], ir.Model],
    call: tuple[tuple[object, ...], dict[str, object]],
    plant: Callable[[ir.Model, random.Random], str | None],
    draw: random.Random,
    limit: float,
) -> tuple[ir.Model, str, set[str]] | None:
    """A faulty model whose outputs show it, the value at fault and the nodes that make it."""
    before = outputs(make(), call)
    for _ in range(20):
        model = make()
        value = plant(model, draw)
        if value is None:
            return None
        try:
            after = outputs(model, call)
        except RunError:
            after = None  # a later node fails: that shows too
        if after is None or changed(before, after, limit):
            made = {v.name: str(node.name) for node in model.graph for v in node.outputs}
            return model, value, {made[n] for n in (value, f"{value}_16") if n in made}
    return None


def outputs(
    model: ir.Model, call: tuple[tuple[object, ...], dict[str, object]]
) -> list[torch.Tensor]:
    feeds = {k: ort_value(t) for k, t in model_feeds(model, call[0], call[1]).items()}
    found = map(tensor_of_ort, Runner("all")(model, feeds).values())
    return [tensor for tensor in found if tensor is not None]


def changed(before: list[torch.Tensor], after: list[torch.Tensor], limit: float) -> bool:
    pairs = [max_diff(one, other) for one, other in zip(before, after, strict=True)]
    return any(d.reason is not None or d.abs > limit * max(d.scale, 1e-3) for d in pairs)


def table(lines: list[Line]) -> str:
    head = ("file of", "beside", "model", "fault", "planted in", "named", "right", "time")
    rows = [
        (
            x.file,
            x.against,
            x.model,
            x.fault,
            x.planted,
            x.named[:70],
            "yes" if x.right else "no",
            f"{x.seconds:.2f} s",
        )
        for x in lines
    ]
    return markdown(head, rows, right=(7,))


def write(lines: list[Line], shown: str) -> None:
    right, models = sum(line.right for line in lines), len({line.model for line in lines})
    told = f"{QUESTION} {right} of {len(lines)} faults in {models} models of the zoo."
    told += f" `python benchmarks/planted_nodes.py`; {machine()}, torch {torch.__version__}."
    data = {"question": QUESTION, "machine": machine(), "lines": [asdict(x) for x in lines]}
    save("planted_nodes", data, f"{told}\n\n{shown}")


if __name__ == "__main__":
    sys.exit(main())
