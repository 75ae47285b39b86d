"""Weights that are tensors made of tensors, as torchao's quantized ones: each part as a weight.

A program keeps such a weight whole, and reads its parts by ``access_subclass_inner_tensor``. Of a
class that has no ``__torch_function__`` it reads nothing so: torch takes it apart when the program
is traced again, and then calls the parts after modules that the model does not have.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator, Mapping
from typing import Any, TypeGuard

import torch
from torch import fx
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind, InputSpec, TensorArgument

from torchferry.seams.operators import export
from torchferry.seams.pytorch import guards_of, set_guards

__all__ = [
    "has_whole_weights", "is_made_of_parts", "name_parts", "parts_of", "split_weights",
]  # fmt: skip

_TORCHS = re.compile(r"(.*?)parametrizations\.(\w+)\.original(\d+)")


def is_made_of_parts(tensor: Any) -> TypeGuard[torch.Tensor]:
    """Whether a tensor has no memory of its own, but tensors inside it."""
    return isinstance(tensor, torch.Tensor) and hasattr(type(tensor), "__tensor_flatten__")


def parts_of(tensor: Any, name: str) -> Iterator[tuple[str, Any]]:
    """The plain tensors inside a tensor with their names, ``weight.scale``, in torch's order.

    Args:
        tensor: a plain one is its own only part.
        name: of the tensor.
    """
    if not is_made_of_parts(tensor):
        yield name, tensor
        return
    inner: Any = tensor
    for attribute in inner.__tensor_flatten__()[0]:
        yield from parts_of(getattr(inner, attribute), f"{name}.{attribute}")


def has_whole_weights(program: ExportedProgram) -> bool:
    """Whether the program holds a weight that is made of parts."""
    return any(map(is_made_of_parts, (*program.state_dict.values(), *program.constants.values())))


def split_weights(program: ExportedProgram) -> ExportedProgram:
    """The program with the parts it reads of its weights as weights: ``0.weight.scale``.

    A weight that an operator takes whole is kept too.

    Args:
        program: left as it is; returned if none of its weights is made of parts.
    """
    if not has_whole_weights(program):
        return program
    module = copy.deepcopy(program.graph_module)
    for node, original in zip(module.graph.nodes, program.graph.nodes, strict=True):
        node.name = original.name  # a copy calls anew what is called as a builtin, as "input" is
    signature = copy.deepcopy(program.graph_signature)
    held = {**program.state_dict, **program.constants}
    state, constants = dict(program.state_dict), dict(program.constants)
    nodes = module.graph.find_nodes(op="placeholder")
    specs: list[InputSpec] = []
    for node, spec in zip(nodes, signature.input_specs, strict=True):
        whole = held.get(spec.target or "")
        if spec.target is None or not is_made_of_parts(whole):
            specs.append(spec)
            continue
        for name, (part, tensor) in _read_parts(node, whole, spec.target).items():
            state[name] = tensor
            specs.append(InputSpec(InputKind.BUFFER, TensorArgument(part.name), name, True))
        if node.users:
            specs.append(spec)
        else:
            module.graph.erase_node(node)
            (state if spec.target in state else constants).pop(spec.target)
    signature.input_specs[:] = specs
    split = ExportedProgram(
        module, module.graph, signature, state, program.range_constraints,
        program.module_call_graph, program.example_inputs, constants,
        verifiers=program.verifiers,
    )  # fmt: skip
    set_guards(split, guards_of(program))
    return split


def _read_parts(
    node: fx.Node, tensor: torch.Tensor, name_of_weight: str
) -> dict[str, tuple[fx.Node, torch.Tensor]]:
    """Give each part that is read of a weight a placeholder, before that of the weight.

    Returns:
        The placeholder and the tensor of each part by name, in the order of the graph.
    """
    read: dict[str, tuple[fx.Node, torch.Tensor]] = {}

    def follow(whole: fx.Node, tensor: torch.Tensor, name: str) -> None:
        for user in list(whole.users):
            if user.target is not export.access_subclass_inner_tensor.default:
                continue
            attribute = str(user.args[1])
            part, called = getattr(tensor, attribute), f"{name}.{attribute}"
            if is_made_of_parts(part):
                follow(user, part, called)
            else:
                if called not in read:
                    with node.graph.inserting_before(node):
                        place = called.removeprefix(name_of_weight).replace(".", "_")
                        placeholder = node.graph.placeholder(f"{node.name}{place}")
                    placeholder.meta = dict(user.meta)
                    read[called] = placeholder, part
                user.replace_all_uses_with(read[called][0])
            if not user.users:
                node.graph.erase_node(user)

    follow(node, tensor, name_of_weight)
    return read


def name_parts(program: ExportedProgram, before: Mapping[str, Any]) -> ExportedProgram:
    """Call parts of weights after their weight again, in a program that torch took apart.

    Args:
        program: traced again; its names are changed in place.
        before: the weights it had, whole, by name.

    Returns:
        The program.
    """
    for spec in program.graph_signature.input_specs:
        match = _TORCHS.fullmatch(spec.target or "")
        whole = None if match is None else before.get(f"{match[1]}{match[2]}")
        if match is None or not is_made_of_parts(whole):
            continue
        (name, _) = list(parts_of(whole, f"{match[1]}{match[2]}"))[int(match[3])]
        held = program.state_dict if spec.target in program.state_dict else program.constants
        held[name] = held.pop(str(spec.target))
        spec.target = name
    return program
