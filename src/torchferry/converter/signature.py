"""Names of the graph's inputs and outputs, and how they stand in the nested arguments."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

import onnx_ir as ir
import torch
from onnx_ir.passes.common import NameFixPass
from torch import fx
from torch.export import ExportedProgram
from torch.export.graph_signature import ConstantArgument

from torchferry.dims import Condition
from torchferry.errors import ConversionError
from torchferry.observer.conditions import store_signature
from torchferry.observer.naming import ALIASES, input_name, output_name
from torchferry.observer.tree import (
    containers_of,
    flat_arguments,
    leaves_of,
    named_path,
    program_inputs,
)
from torchferry.seams.pytorch import pytree
from torchferry.seams.versions import installed
from torchferry.values.describe import string_type
from torchferry.values.flatten import Path, Structure, flatten, path_text
from torchferry.values.signature import Constant, Signature, Slot, is_same_constant
from torchferry.values.step import LIFTED, Step

__all__ = ["read_signature", "write_signature"]


def read_signature(
    program: ExportedProgram,
    defaults: Mapping[str, Any] | None = None,
    conditions: Iterable[Condition] = (),
    named: Callable[[str], str] = str,
) -> Signature:
    """Name every input and output of a program.

    A cache's keys and values are ``past_key_values.0.key`` on the way in and ``present.0.key`` on
    the way out; the other names are paths (``encoder.0``), ``output_0`` for a tuple's items. An
    output whose name is taken, by an input or another output, is called ``output_NAME``. A
    constant, or None, that is not among forward's ``defaults`` is required in every call.
    ``named`` is a size in torch's symbols to the same in the user's names.

    Raises:
        ConversionError: two inputs would get the same name, or the outputs are nested in a class
            that cannot be put together again. Or forward has both names of a cache.
    """
    given = list(program_inputs(program))
    inputs = [Slot(input_name(named_path(program, path)), path) for path, _ in given]
    names = [slot.name for slot in inputs]
    doubled = [n for n, (_, node) in zip(names, given, strict=True) if _complex(node.meta["val"])]
    for name in names:
        if names.count(name) > 1:
            raise ConversionError(f"two inputs would both be called {name}: rename one argument")
    args, kwargs = program.example_inputs or ((), {})
    places = {slot.path for slot in inputs}
    constants = {
        path_text(path): leaf
        for path, leaf in leaves_of(args, kwargs).items()
        if isinstance(leaf, (bool, int, float, str)) and path not in places
    }
    structure, leaves, numbers, returned = _outputs(program, set(names))
    parameters = _parameters(program, defaults or {})
    _refuse_two_caches({*parameters, *(defaults or {})})
    known = {k: v for k, v in (defaults or {}).items() if isinstance(v, (bool, int, float, str))}
    required = _unlike(constants, known)
    # Whoever gives a default by name gives what was exported, unless something else was given.
    tops = {str(named_path(program, path)[0]) for path, _ in flat_arguments(program)}
    constants = {**{k: v for k, v in known.items() if k not in tops}, **constants}
    containers = {k: "None" for k, v in (defaults or {}).items() if v is None and k not in tops}
    containers |= _containers(program)
    nones = [name for name, kind in containers.items() if kind == "None"]
    required += tuple(name for name in nones if (defaults or {}).get(name, ...) is not None)
    tests = tuple(one.stored for one in conditions)
    return Signature(
        parameters, tuple(inputs), constants, structure, leaves, numbers, required, tests,
        (*doubled, *returned), _integers(inputs, given, named),
        containers=containers,
    )  # fmt: skip


def _unlike(constants: Mapping[str, Any], known: Mapping[str, Any]) -> tuple[str, ...]:
    return tuple(k for k, one in constants.items()
                 if k not in known or not is_same_constant(known[k], one))  # fmt: skip


def _parameters(program: ExportedProgram, defaults: Collection[str]) -> tuple[str, ...]:
    """Forward's parameters, in order; one with a default that no call gave has its place too."""
    given = program.module_call_graph[0].signature.forward_arg_names or ()
    found = [*(name for name in given if name not in defaults), *defaults]
    return tuple(sorted(found, key=lambda name: name == LIFTED))  # which is given by name


def _refuse_two_caches(names: Collection[str]) -> None:
    if {*ALIASES} <= {*names}:
        raise ConversionError(
            f"forward has both arguments {' and '.join(ALIASES)}, which are taken for one, since "
            "transformers' releases call a cache by either name: rename one"
        )


def _integers(
    slots: Sequence[Slot], given: Sequence[tuple[Path, fx.Node]], named: Callable[[str], str]
) -> dict[str, str]:
    """What the inputs that are Python integers are called as sizes."""
    examples = zip(slots, (node.meta["val"] for _, node in given), strict=True)
    return {
        slot.name: named(str(value)) for slot, value in examples if isinstance(value, torch.SymInt)
    }


def _containers(program: ExportedProgram) -> dict[str, str]:
    found = containers_of(*(program.example_inputs or ((), {})))
    return {path_text(named_path(program, path)): kind for path, kind in found.items()}


def write_signature(model: ir.Model, signature: Signature) -> None:
    """Rename the inputs and outputs of a translated model and store the signature, in place.

    The graph's inputs and outputs must be in the order of the program's. An output that is an
    input, a weight or another output gets a node of its own; a value inside the graph that has
    the name of an input or output, another name.
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
    NameFixPass()(model)  # inputs and outputs come first and keep their names
    model.producer_name, model.producer_version = "torchferry", installed("torchferry")
    store_signature(signature, model.metadata_props)


def _outputs(
    program: ExportedProgram, inputs: set[str]
) -> tuple[Structure, tuple[Any, ...], tuple[str, ...], tuple[str, ...]]:
    """Nesting, leaves, and names of the Python numbers and of the complex tensors returned."""
    stand_ins = _StandIns(program)
    pairs, structure = flatten(stand_ins.nested)
    positions = [stand_ins.position(leaf) for _, leaf in pairs]
    if [p for p in positions if p is not None] != list(range(stand_ins.count)):
        raise ConversionError(
            f"the model returns {string_type(stand_ins.nested)}, with tensors inside a class "
            "torchferry does not know, or knows otherwise than PyTorch's pytrees do: return them "
            "in tuples, lists or dictionaries, or teach it the class with "
            "torchferry.values.kinds.register"
        )
    leaves: list[Any] = []
    numbers: list[str] = []
    doubled: list[str] = []
    taken = set(inputs)
    for (path, leaf), position in zip(pairs, positions, strict=True):
        if position is None:
            leaves.append(_constant(path, leaf))
            continue
        name = output_name(path)
        if isinstance(stand_ins.nested, Step):
            state = path_text(("state_next", *path[1:]))
            name = state if path[0] == 1 else output_name(path[1:])
        while name in taken:
            name = f"output_{name}"
        taken.add(name)
        leaves.append([name])
        if not isinstance(leaf, torch.Tensor):
            numbers.append(name)
        elif leaf.is_complex():
            doubled.append(name)
    return structure, tuple(leaves), tuple(numbers), tuple(doubled)


def _complex(example: Any) -> bool:
    return isinstance(example, torch.Tensor) and example.is_complex()


def _constant(path: Path, leaf: Any) -> Constant:
    if leaf is None or isinstance(leaf, (bool, int, float, str)):
        return leaf
    raise ConversionError(
        f"output {path_text(path)} is a {type(leaf).__name__}, which an ONNX model cannot return: "
        "return tensors, numbers, text or None"
    )


class _StandIns:
    """The outputs with a stand-in for everything that is computed.

    A class that another library registered with pytrees may copy its tensors when it is put
    together, so a stand-in is known by its last size where it has one, else by its identity.

    Attributes:
        nested: what the model returns.
        count: how many of its leaves are computed.
    """

    def __init__(self, program: ExportedProgram) -> None:
        self._known: list[Any] = []
        values: list[Any] = []
        output = program.graph.output_node().args[0]
        for node, spec in zip(output, program.graph_signature.output_specs, strict=True):
            if spec.kind.name != "USER_OUTPUT":
                continue
            if isinstance(spec.arg, ConstantArgument):
                values.append(spec.arg.value)
            else:
                self._known.append(self._make(node.meta["val"], len(self._known)))
                values.append(self._known[-1])
        self.count = len(self._known)
        self.nested = pytree.tree_unflatten(values, program.call_spec.out_spec)

    def _make(self, example: Any, position: int) -> Any:
        if not isinstance(example, torch.Tensor):
            return _Number()
        shape = [*[1] * (example.ndim - 1), position + 1] if example.ndim else []
        return torch.zeros(shape, dtype=example.dtype)

    def position(self, leaf: Any) -> int | None:
        """Which of the computed outputs a leaf stands for; ``None`` for a constant."""
        if isinstance(leaf, torch.Tensor) and leaf.ndim:
            return leaf.shape[-1] - 1
        return next((i for i, known in enumerate(self._known) if known is leaf), None)


class _Number:
    """Stands for a size the model returns as a Python number."""
