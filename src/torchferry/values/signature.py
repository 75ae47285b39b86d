"""How a model's named tensors stand in its nested arguments and outputs, as JSON.

Stored in the metadata of an exported model, so that a saved file can be called with the arguments
the original model takes and gives back what it returns.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast, get_args

from torchferry.errors import UsageError
from torchferry.values.flatten import (
    Path,
    Structure,
    structure_from_json,
    structure_to_json,
    unflatten,
)
from torchferry.values.kinds import find_class_here
from torchferry.values.reliance import Reliance

if TYPE_CHECKING:
    import torch

__all__ = ["SIGNATURE_KEY", "Constant", "Signature", "Slot", "is_same_constant"]

SIGNATURE_KEY = "pkg.torchferry.signature"  # of the model's metadata

Constant = None | bool | int | float | str


def is_same_constant(wanted: Constant, value: Any) -> bool:
    """Whether a constant is the one exported: 2 is not 2.0, True or an enumeration's 2.

    Code may ask for any of it, and divides by 0.0 and -0.0 to other results.
    """
    return type(value) is type(wanted) and repr(value) == repr(wanted)


@dataclass(frozen=True)
class Slot:
    """A named tensor and its place.

    Attributes:
        name: of the graph's input or output.
        path: where it stands in the arguments: ``("past_key_values", "key_cache", 0)``.
    """

    name: str
    path: Path


@dataclass(frozen=True)
class Signature:
    """The nested form of a model's inputs and outputs.

    Attributes:
        parameters: names of forward's parameters, in order, to place positional arguments.
        inputs: the tensors it takes, in the order of the graph's inputs.
        constants: arguments that are part of the graph, by path as text.
        outputs: nesting of what it returns.
        leaves: for each leaf of ``outputs`` the name of a graph output, in a list of one, or the
            constant that is always returned there.
        numbers: names of the outputs that the model returns as Python numbers.
        required: the constants that must be given in every call, as forward's defaults differ.
        conditions: what the program took for granted of sizes and integers: the test, the sizes
            in it, and the user's line, as ``torchferry.dims.Condition`` has them.
        complex: names of the inputs and outputs that are complex for the model, and in the graph
            real, with a last axis of two.
        integers: what the inputs that are Python integers are called as sizes, by input.
        containers: the lists, tuples, dictionaries and None among the arguments, by path as text,
            in the words of ``torchferry.observer.tree.containers_of``.
        relies: what the model's code asks of the arguments besides: calls are held to it.
        unproven: why the model computes nothing that was found right; ``""`` if something was.
    """

    parameters: tuple[str, ...]
    inputs: tuple[Slot, ...]
    constants: Mapping[str, Constant]
    outputs: Structure
    leaves: tuple[list[str] | Constant, ...]
    numbers: tuple[str, ...] = ()
    required: tuple[str, ...] = ()
    conditions: tuple[tuple[str, tuple[str, ...], str, bool], ...] = ()
    complex: tuple[str, ...] = ()
    integers: Mapping[str, str] = field(default_factory=dict)
    unproven: str = ""
    containers: Mapping[str, str] = field(default_factory=dict)
    relies: tuple[Reliance, ...] = ()

    @property
    def output_names(self) -> tuple[str, ...]:
        """Names of the graph's outputs, in the order of the leaves."""
        return tuple(leaf[0] for leaf in self.leaves if isinstance(leaf, list))

    def nest(self, results: Mapping[str, Any]) -> Any:
        """Put named results back into what the model returns."""
        values = [
            leaf
            if not isinstance(leaf, list)
            else results[leaf[0]].item()
            if leaf[0] in self.numbers
            else _joined(results[leaf[0]])
            if leaf[0] in self.complex
            else results[leaf[0]]
            for leaf in self.leaves
        ]
        return unflatten(values, self.outputs)

    def to_json(self) -> str:
        """The signature as one JSON text."""
        return json.dumps(
            {
                "parameters": self.parameters,
                "inputs": [[slot.name, list(slot.path)] for slot in self.inputs],
                "constants": dict(self.constants),
                "outputs": structure_to_json(self.outputs),
                "leaves": self.leaves,
                "numbers": self.numbers,
                "required": self.required,
                "conditions": self.conditions,
                "complex": self.complex,
                "integers": dict(self.integers),
                "unproven": self.unproven,
                "containers": dict(self.containers),
                "relies": self.relies,
            }
        )

    @classmethod
    def from_json(cls, text: str) -> Signature:
        """Read what `to_json` wrote.

        Raises:
            UsageError: the text is no such JSON, or names a class that cannot be found.
        """
        try:
            data = json.loads(text)
            outputs = structure_from_json(data["outputs"], find_class_here)
            return cls(
                parameters=_strings(data["parameters"]),
                inputs=tuple(_slot(*pair) for pair in data["inputs"]),
                constants={str(key): _constant(c) for key, c in dict(data["constants"]).items()},
                outputs=outputs,
                leaves=_leaves(data["leaves"], outputs.leaf_count),
                numbers=_strings(data["numbers"]),
                required=_strings(data["required"]),
                conditions=tuple(_tested(*one) for one in data.get("conditions", ())),
                complex=_strings(data.get("complex", [])),
                integers=_texts(data.get("integers", {})),
                unproven=_strings([data.get("unproven", "")])[0],
                containers=_texts(data.get("containers", {})),
                relies=tuple(_reliance(one) for one in data.get("relies", ())),
            )
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise UsageError(
                f"the model's signature cannot be read ({type(error).__name__}: {error}); "
                "it was not written by torchferry, or by a newer version: export it again"
            ) from error


def _joined(pairs: torch.Tensor) -> torch.Tensor:
    """A last axis of two as complex numbers, which they may be already."""
    import torch

    return pairs if pairs.is_complex() else torch.complex(*pairs.unbind(-1))


def _strings(values: Any) -> tuple[str, ...]:
    if not isinstance(values, list) or not all(isinstance(value, str) for value in values):
        raise TypeError(f"{str(values)[:80]} is no list of names")
    return tuple(values)


def _texts(values: Any) -> dict[str, str]:
    if not isinstance(values, dict) or not all(isinstance(v, str) for v in values.values()):
        raise TypeError(f"{str(values)[:80]} is no table of names")
    return values


def _tested(
    test: Any, sizes: Any, line: Any = "", choice: Any = False
) -> tuple[str, tuple[str, ...], str, bool]:
    return _strings([test])[0], _strings(sizes), _strings([line])[0], choice is True


def _reliance(word: Any) -> Reliance:
    for known in get_args(Reliance):
        if word == known:
            return cast("Reliance", known)
    raise ValueError(f"nothing is known of {str(word)[:80]!r}")


def _slot(name: Any, path: Any) -> Slot:
    if not isinstance(name, str) or not isinstance(path, list) or not path:
        raise TypeError(f"{name!r} at {path!r} is no input")
    if not all(isinstance(part, (str, int)) for part in path):
        raise TypeError(f"{path!r} is no path")
    return Slot(name, tuple(path))


def _leaves(leaves: Any, count: int) -> tuple[list[str] | Constant, ...]:
    if len(leaves) != count:
        raise ValueError(f"{len(leaves)} leaves for {count} places")
    return tuple(_leaf(leaf) for leaf in leaves)


def _leaf(leaf: Any) -> list[str] | Constant:
    return list(_strings(leaf)[:1]) if isinstance(leaf, list) and leaf else _constant(leaf)


def _constant(value: Any) -> Constant:
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    raise TypeError(f"{str(value)[:80]} is no constant")
