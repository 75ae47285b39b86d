"""Names of the graph's inputs and outputs, and how they stand in the nested arguments."""

from __future__ import annotations

from typing import Any

import onnx_ir as ir
import torch
from torch.export import ExportedProgram
from torch.export.graph_signature import ConstantArgument
from torch.utils import _pytree as pytree

from torchferry.errors import ConversionError
from torchferry.observer.naming import cache_name, input_name
from torchferry.observer.tree import leaves_of, program_inputs
from torchferry.values.flatten import Path, Structure, flatten, path_text
from torchferry.values.signature import SIGNATURE_KEY, Signature, Slot

__all__ = ["read_signature", "write_signature"]


def read_signature(program: ExportedProgram) -> Signature:
    """Name every input and output of a program.

    A cache's keys and values are ``past_key_values.0.key`` on the way in and ``present.0.key`` on
    the way out; the other names are paths (``encoder.0``), ``output_0`` for a tuple's items.

    Raises:
        ConversionError: two inputs would get the same name.
    """
    inputs = []
    for path, node in program_inputs(program):
        named = (node.name,) if isinstance(path[0], int) else path
        inputs.append(Slot(input_name(named), path))
    names = [slot.name for slot in inputs]
    for name in names:
        if names.count(name) > 1:
            raise ConversionError(f"two inputs would both be called {name}: rename one argument")
    args, kwargs = program.example_inputs or ((), {})
    constants = {
        path_text(path): leaf
        for path, leaf in leaves_of(args, kwargs).items()
        if isinstance(leaf, (bool, int, float, str))
    }
    structure, leaves, numbers = _outputs(program, set(names))
    parameters = tuple(program.module_call_graph[0].signature.forward_arg_names or ())
    return Signature(parameters, tuple(inputs), constants, structure, leaves, numbers)


def write_signature(model: ir.Model, signature: Signature) -> None:
    """Rename the inputs and outputs of a translated model and store the signature, in place.

    The graph's inputs and outputs must be in the order of the program's. An output that is an
    input, a weight or another output gets a node of its own.
    """
    graph = model.graph
    for value, slot in zip(graph.inputs, signature.inputs, strict=True):
        value.name = slot.name
    taken: set[int] = set()
    for index, (value, name) in enumerate(
        zip(list(graph.outputs), signature.output_names, strict=True)
    ):
        output = value
        if value.is_graph_input() or value.is_initializer() or id(value) in taken:
            node = ir.node("Identity", [value])
            output = node.outputs[0]
            output.shape, output.type = value.shape, value.type
            graph.append(node)
            graph.outputs[index] = output
        taken.add(id(output))
        output.name = name
    model.producer_name = "torchferry"
    model.metadata_props[SIGNATURE_KEY] = signature.to_json()


def _outputs(
    program: ExportedProgram, inputs: set[str]
) -> tuple[Structure, tuple[Any, ...], tuple[str, ...]]:
    """Nesting, leaves and names of the Python numbers among the outputs."""
    nested, numbered = _example_outputs(program)
    pairs, structure = flatten(nested)
    leaves: list[Any] = []
    numbers: list[str] = []
    for path, leaf in pairs:
        if id(leaf) not in numbered:
            leaves.append(leaf)
            continue
        name = _output_name(path)
        name = f"output_{name}" if name in inputs else name
        leaves.append([name])
        if not isinstance(leaf, torch.Tensor):
            numbers.append(name)
    return structure, tuple(leaves), tuple(numbers)


def _example_outputs(program: ExportedProgram) -> tuple[Any, dict[int, Any]]:
    """The outputs with a stand-in, known by its identity, for everything that is computed."""
    output = program.graph.output_node().args[0]
    values: list[Any] = []
    stand_ins: dict[int, Any] = {}
    for node, spec in zip(output, program.graph_signature.output_specs, strict=True):
        if spec.kind.name != "USER_OUTPUT":
            continue
        if isinstance(spec.arg, ConstantArgument):
            values.append(spec.arg.value)
            continue
        example = node.meta["val"]
        is_tensor = isinstance(example, torch.Tensor)
        stand_in = (
            torch.empty((1,) * example.ndim, dtype=example.dtype, device="meta")
            if is_tensor
            else _Number()
        )
        stand_ins[id(stand_in)] = stand_in
        values.append(stand_in)
    return pytree.tree_unflatten(values, program.call_spec.out_spec), stand_ins


class _Number:
    """Stands for a size the model returns as a Python number."""


def _output_name(path: Path) -> str:
    if not path:
        return "output"
    name = cache_name("present", path)
    return name or ("output_" if isinstance(path[0], int) else "") + path_text(path)
