"""How a model's named tensors stand in its nested arguments and outputs, as JSON.

Stored in the metadata of an exported model, so that a saved file can be called with the arguments
the original model takes and gives back what it returns.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from torchferry.errors import UsageError
from torchferry.values.flatten import (
    Path,
    Structure,
    structure_from_json,
    structure_to_json,
    unflatten,
)

__all__ = ["SIGNATURE_KEY", "Signature", "Slot"]

SIGNATURE_KEY = "pkg.torchferry.signature"  # of the model's metadata

Constant = None | bool | int | float | str


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
    """

    parameters: tuple[str, ...]
    inputs: tuple[Slot, ...]
    constants: Mapping[str, Constant]
    outputs: Structure
    leaves: tuple[list[str] | Constant, ...]
    numbers: tuple[str, ...] = field(default=())

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
            return cls(
                parameters=tuple(data["parameters"]),
                inputs=tuple(Slot(name, tuple(path)) for name, path in data["inputs"]),
                constants=data["constants"],
                outputs=structure_from_json(data["outputs"]),
                leaves=tuple(data["leaves"]),
                numbers=_strings(data["numbers"]),
            )
        except (ValueError, KeyError, TypeError) as error:
            raise UsageError(
                f"the model's signature cannot be read ({type(error).__name__}: {error}); "
                "it was not written by torchferry, or by a newer version: export it again"
            ) from error


def _strings(values: Sequence[Any]) -> tuple[str, ...]:
    return tuple(map(str, values))
