"""A whole program as an ONNX graph: its inputs, weights and outputs around the driver's walk."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import onnx
import onnx_ir as ir
import torch
from onnx_ir.passes.common import RemoveUnusedNodesPass
from torch import fx
from torch.export import ExportedProgram
from torch.export.graph_signature import ConstantArgument, InputKind, OutputKind

from torchferry.converter import torchlib
from torchferry.converter.block import Block
from torchferry.converter.coverage import is_ours
from torchferry.converter.driver import Scope
from torchferry.converter.program.aliasing import graphs_of
from torchferry.converter.program.functional import functional
from torchferry.converter.program.in_place import functional_form
from torchferry.converter.program.subclass import split_weights
from torchferry.converter.weight import weight_value
from torchferry.converter.write.provenance import module_of
from torchferry.converter.write.size import Sizes
from torchferry.errors import ConversionError, MissingLowering
from torchferry.observer.tree import fixed_integer
from torchferry.seams.pytorch import is_functorch_tensor, storage_number
from torchferry.values.source_line import user_line

__all__ = ["register_initializers", "translate"]

_WEIGHTS = (InputKind.PARAMETER, InputKind.BUFFER, InputKind.CONSTANT_TENSOR)
_IR_LEAST = 10  # what torch.onnx writes; the runtimes of the day read it
_PLACES = 12  # lines that name missing operators


def translate(
    program: ExportedProgram,
    opset: int,
    names: Callable[[str], str] = str,
    *,
    as_stored: bool = False,
) -> ir.Model:
    """The program's graph in ONNX, with torch's names of values.

    Args:
        program: what torch.export gave.
        opset: ONNX operator set.
        names: what a size is called (``s13 + s70`` to ``past + sequence``); symbols that get one
            name are taken for one size.
        as_stored: see `torchferry.converter.convert`.

    Raises:
        MissingLowering: operators that neither we nor onnxscript nor torch's decompositions know,
            all of them.
        LoweringFailed: one operator cannot be written with what it is given.
        ConversionError: an input is not a tensor, the program holds a tensor of torch.func, or
            it returns nothing that it computes.
    """
    program = prepared(program)
    _check_known(program)
    block = Block(opset)
    scope = Scope(block, Sizes(names), root=program.graph_module)
    inputs = list(_bound(program, scope, as_stored))
    returned = scope.walk(program.graph)
    specs = program.graph_signature.output_specs
    outputs = [
        _output(block, value)
        for value, spec in zip(returned, specs, strict=True)
        if spec.kind is OutputKind.USER_OUTPUT and not isinstance(spec.arg, ConstantArgument)
    ]
    if not outputs:
        raise ConversionError(
            "forward returns no tensor and no number that it computes, and an ONNX model has "
            "to return something: return a tensor, for a constant torch.tensor(...)"
        )
    graph = ir.Graph(
        inputs, outputs, nodes=block.nodes, opset_imports=dict(block.domains), name="main"
    )
    needed = onnx.helper.find_min_ir_version_for([onnx.helper.make_opsetid("", opset)])
    model = ir.Model(graph, ir_version=max(_IR_LEAST, needed))
    RemoveUnusedNodesPass()(model)
    register_initializers(model)
    return model


def prepared(program: ExportedProgram) -> ExportedProgram:
    """The program as it is converted, node by node; the given one is left as it is.

    Writes in place that nobody sees are still in it. Weights made of parts are split.
    """
    return functional(split_weights(program), _ours)


def _ours(target: Any) -> bool:
    return is_ours(functional_form(target) or target)


def _bound(program: ExportedProgram, scope: Scope, as_stored: bool) -> Iterator[ir.Value]:
    """Bind every placeholder; yield those that are inputs of the graph."""
    held = {**program.state_dict, **program.constants}
    names: dict[int, list[str]] = {}  # of the weights that lie in one memory
    for name, tensor in held.items():
        if is_functorch_tensor(tensor):
            raise ConversionError(
                f"the program holds {name}, a tensor that exists only inside torch.func (grad, "
                "jacrev, vmap) while it is traced: torch.export has lost how it is computed. "
                "Compute the derivative outside the model, or with torch.autograd.grad"
            )
        if _stored(tensor):
            names.setdefault(storage_number(tensor.untyped_storage()), []).append(name)
    for node, spec in zip(
        program.graph.find_nodes(op="placeholder"), _specs(program), strict=True
    ):
        if spec.kind in _WEIGHTS:
            tensor = held[spec.target]
            tied = names[storage_number(tensor.untyped_storage())]
            shared = as_stored or len(tied) > 1 or len(node.users) > 1
            value = weight_value(tensor, str(spec.target), shared=shared)
            value.meta["tied"] = tied  # a checkpoint may have it under any of them
            scope.bind(node, value)
        elif isinstance(spec.arg, ConstantArgument):
            scope.bind(node, spec.arg.value)
        elif isinstance(node.meta.get("val"), torch.Tensor):
            yield scope.input(node)
        elif (number := fixed_integer(node.meta.get("val"))) is not None:
            scope.bind(node, number)
        elif isinstance(node.meta.get("val"), torch.SymInt):
            integer = ir.Value(
                name=node.name, type=ir.TensorType(ir.DataType.INT64), shape=ir.Shape([])
            )
            scope.bind(node, scope.block.Unsqueeze(integer, [0]))
            yield integer
        else:
            raise ConversionError(
                f"input {node.name} is a {type(node.meta.get('val')).__name__}, and ONNX has "
                "tensors only: give it as a tensor, or as a constant",
                node=node.name,
            )


def _specs(program: ExportedProgram) -> list[Any]:
    return list(program.graph_signature.input_specs)


def _stored(tensor: Any) -> bool:
    return isinstance(tensor, torch.Tensor) and tensor.layout is torch.strided


def _output(block: Block, value: Any) -> ir.Value:
    """A graph output; a size is returned as a number, of shape []."""
    if isinstance(value, ir.Value):
        made = value.meta.get("finished") or value.is_initializer() or value.const_value
        return value if made else block.scalar(value)
    return block.constant(value)


def register_initializers(model: ir.Model) -> None:
    """Make the weights and constants that are used initializers, each under a name of its own.

    Args:
        model: changed in place; values with a constant and no producer count.
    """
    used: dict[ir.Value, None] = {}
    for node in model.graph.all_nodes():
        for value in node.inputs:
            if value is not None and value.const_value is not None and value.producer() is None:
                used.setdefault(value)
    for graph in model.graphs():
        for value in graph.outputs:
            if value.const_value is not None and value.producer() is None:
                used.setdefault(value)
    taken: set[str | None] = set()
    for value in used:
        name, count = value.name, 0
        while value.name in taken:  # two were made of one weight, or two graphs call theirs alike
            count += 1
            value.name = f"{name}_{count}"
        taken.add(value.name)
        model.graph.register_initializer(value)


def _check_known(program: ExportedProgram) -> None:
    """Refuse all operators without an ONNX form at once."""
    missing: dict[str, list[fx.Node]] = {}
    for graph in graphs_of(program):
        for node in graph.nodes:
            if (
                node.op == "call_function"
                and not _ours(node.target)
                and not torchlib.borrowed(node.target)
            ):
                missing.setdefault(str(node.target), []).append(node)
    if not missing:
        return
    lines = [f"{len(missing)} operators have no ONNX form:" if len(missing) > 1 else
             "an operator has no ONNX form:"]  # fmt: skip
    for name, nodes in list(missing.items())[:_PLACES]:
        line, module = user_line(nodes[0].stack_trace), module_of(nodes[0])
        where = ", ".join(filter(None, (module and f"in {module}", line and f"at {line}")))
        lines.append(f"  {name} ({len(nodes)}x)" + (f" {where}" if where else ""))
    if len(missing) > _PLACES:
        lines.append(f"  and {len(missing) - _PLACES} more, in the error's .operators")
    lines.append("Write each with @torchferry.lowers(torch.ops...), or use others in the model")
    first = next(iter(missing.values()))[0]
    raise MissingLowering(
        "\n".join(lines),
        {name: len(nodes) for name, nodes in missing.items()},
        node=first.name,
        source_line=user_line(first.stack_trace),
    )
