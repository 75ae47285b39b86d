"""Refuse programs that write to a buffer or an input: an ONNX graph would drop the write."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from operator import getitem
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind, OutputKind, TensorArgument

from torchferry.converter.program.aliasing import hidden_view, is_view, said
from torchferry.converter.program.functional import functional
from torchferry.converter.program.in_place import updates_statistics
from torchferry.errors import ConversionError
from torchferry.seams.pytorch import pytree, schema_of
from torchferry.values.source_line import user_line

__all__ = ["refuse_mutations"]

_KINDS = {
    InputKind.BUFFER: "buffer",
    InputKind.CONSTANT_TENSOR: "tensor",
    InputKind.PARAMETER: "parameter",
    InputKind.USER_INPUT: "input",
}


def refuse_mutations(program: ExportedProgram) -> None:
    """Check that no write of the program to its inputs, buffers, parameters or constants is lost.

    Writes to what was made on the way are fine, and so are those to an input that the program
    returns as well: the caller has the new value.

    Raises:
        ConversionError: names what is written to, and the user's line.
    """
    specs = {spec.arg.name: spec for spec in program.graph_signature.input_specs}
    calls = _calls_of_blocks(program)
    written: dict[str, torch.fx.Node] = {}
    with said(program):
        for node in (node for graph in (program.graph, *calls) for node in graph.nodes):
            for target in _written_by(node):
                source = _source(target, calls)
                if source.op == "placeholder":
                    spec = specs[source.name]
                    kind = _KINDS.get(spec.kind, "object")
                    name = source.name if spec.target is None else spec.target
                    written.setdefault(f"{kind} {name}", node)
    for output in program.graph_signature.output_specs:  # of a program that was functionalized
        if output.kind not in (OutputKind.USER_OUTPUT, OutputKind.LOSS_OUTPUT):
            kind = output.kind.name.removeprefix("USER_").split("_")[0].lower()
            written.setdefault(f"{kind} {output.target}", program.graph.output_node())
    if written and all(name.startswith("input ") for name in written):
        returned = _returned(program)
        written = {name: node for name, node in written.items() if name[6:] not in returned}
    if written:
        training = any(name.endswith("num_batches_tracked") for name in written)
        first = next(iter(written.values()))
        line = user_line(first.stack_trace)
        raise ConversionError(
            f"forward writes to {', '.join(written)}"
            + (f", at {line}" if line else "")
            + ". An ONNX graph has no state, so the write would be lost: "
            + (
                'call model.eval() first, or keep the statistics: state="lift"'
                if training
                else "return the new value as an output, take a copy first (x = x.clone()), or "
                'keep it from call to call: state="lift"'
            ),
            node=first.name,
            source_line=line,
        )


def _returned(program: ExportedProgram) -> set[str]:
    """The inputs that the program writes to and whose new value is among its outputs."""
    signature = functional(program, lambda _: True).graph_signature
    outputs = {
        spec.arg.name
        for spec in signature.output_specs
        if spec.kind is OutputKind.USER_OUTPUT and isinstance(spec.arg, TensorArgument)
    }
    written = {
        spec.target
        for spec in signature.output_specs
        if spec.kind is OutputKind.USER_INPUT_MUTATION and spec.arg.name in outputs
    }
    # tracing gives the inputs other names, in the same order
    before = program.graph_signature.input_specs
    return {
        spec.arg.name
        for spec, after in zip(before, signature.input_specs, strict=True)
        if after.arg.name in written
    }


def _written_by(node: torch.fx.Node) -> Iterator[torch.fx.Node]:
    # torch.tensor(...) inside forward is traced as detach_ of a fresh copy; it writes nothing.
    if node.target is not torch.ops.aten.detach_.default:
        yield from (argument for argument, written in _aliased(node) if written)
    if updates_statistics(node):
        yield from (arg for arg in node.args[3:5] if isinstance(arg, torch.fx.Node))


def _calls_of_blocks(program: ExportedProgram) -> dict[torch.fx.Graph, torch.fx.Node]:
    """The graphs inside the program, by the node that runs each.

    What stands under autocast, no_grad or a condition is a graph of its own.
    """
    return {
        block: node
        for module in program.graph_module.modules()
        if isinstance(module, torch.fx.GraphModule)
        for node in module.graph.nodes
        for block in _blocks(node)
    }


def _blocks(node: torch.fx.Node) -> list[torch.fx.Graph]:
    names = [str(arg.target) for arg in node.all_input_nodes if arg.op == "get_attr"]
    modules = [getattr(node.graph.owning_module, name, None) for name in names]
    return [module.graph for module in modules if isinstance(module, torch.fx.GraphModule)]


def _source(node: torch.fx.Node, calls: Mapping[torch.fx.Graph, torch.fx.Node]) -> torch.fx.Node:
    """The node whose memory a tensor lies in, looking into and out of blocks."""
    while True:
        inner = _nearer(node, calls)
        if not isinstance(inner, torch.fx.Node):
            return node
        node = inner


def _nearer(node: torch.fx.Node, calls: Mapping[torch.fx.Graph, torch.fx.Node]) -> Any:
    """The node whose memory this one's is, one step on; ``None`` when it is its own."""
    if node.op == "placeholder":
        return _operand(node, calls[node.graph]) if node.graph in calls else None
    if node.target is getitem:
        called: Any
        called, index = node.args
        blocks = _blocks(called)
        returned: Any = blocks[0].output_node().args[0] if blocks else None
        return returned[index] if blocks else called
    viewed, written = next(_aliased(node), (None, False))
    if viewed is None:
        return hidden_view(node)
    return viewed if written or is_view(node, viewed) else None


def _operand(placeholder: torch.fx.Node, call: torch.fx.Node) -> torch.fx.Node:
    """What a block is given for one of its inputs; operands are the last arguments of the call."""
    inputs = [node for node in placeholder.graph.nodes if node.op == "placeholder"]
    operands = [
        arg
        for arg in pytree.arg_tree_leaves(*call.args, **call.kwargs)
        if isinstance(arg, torch.fx.Node) and arg.op != "get_attr"
    ]
    return operands[-len(inputs) :][inputs.index(placeholder)]


def _aliased(node: torch.fx.Node) -> Iterator[tuple[torch.fx.Node, bool]]:
    """The arguments that the schema says are written to (True) or that results are views of."""
    schema = schema_of(node.target)
    for index, argument in enumerate(schema.arguments if schema is not None else ()):
        if argument.alias_info is None:
            continue
        given = node.args[index] if index < len(node.args) else node.kwargs.get(argument.name)
        for value in given if isinstance(given, (list, tuple)) else [given]:
            if isinstance(value, torch.fx.Node):
                yield value, argument.alias_info.is_write
