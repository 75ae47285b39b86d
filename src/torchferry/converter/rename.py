"""Names that the user chooses for the inputs and outputs of a model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import onnx_ir as ir

from torchferry.converter.signature import write_signature
from torchferry.errors import UsageError
from torchferry.values.signature import SIGNATURE_KEY, Signature

__all__ = ["Names", "rename_ends"]

Names = Sequence[str] | Mapping[str, str]
"""New names of all, in order, or of some, by the names that they have."""


def rename_ends(model: ir.Model, input_names: Names = (), output_names: Names = ()) -> None:
    """Give the inputs and outputs of a translated model other names, in place.

    Its signature goes along, so that it is called, verified and saved as before.

    Args:
        model: as `convert` gave it.
        input_names: new names; none keeps those there are.
        output_names: the same for the outputs.

    Raises:
        UsageError: there are more or fewer of them, none of such a name, or one name twice.
    """
    if not input_names and not output_names:
        return
    signature = Signature.from_json(model.metadata_props[SIGNATURE_KEY])
    inputs = _table("input", [slot.name for slot in signature.inputs], input_names)
    outputs = _table("output", list(signature.output_names), output_names)
    new = {**inputs, **outputs}
    if both := sorted({*inputs.values()} & {*outputs.values()}):
        raise UsageError(f"an input and an output would both be called {both[0]}: rename one")
    write_signature(
        model,
        replace(
            signature,
            inputs=tuple(replace(one, name=inputs[one.name]) for one in signature.inputs),
            leaves=tuple(
                [outputs[one[0]]] if isinstance(one, list) else one for one in signature.leaves
            ),
            numbers=tuple(outputs[name] for name in signature.numbers),
            complex=tuple(new[name] for name in signature.complex),
            integers={inputs[name]: size for name, size in signature.integers.items()},
        ),
    )


def _table(kind: str, names: list[str], wanted: Names) -> dict[str, str]:
    """The new name of each; the old one where none is wanted."""
    known = f"the {kind}s are {', '.join(names)}"
    if isinstance(wanted, Mapping):
        if unknown := sorted(wanted.keys() - {*names}):
            raise UsageError(f"no {kind} is called {unknown[0]}: {known}")
        found = {name: wanted.get(name, name) for name in names}
    elif isinstance(wanted, str) or len(wanted) not in (0, len(names)):
        raise UsageError(f"{kind}_names has {len(wanted)} names for {len(names)}: {known}")
    else:
        found = dict(zip(names, wanted or names, strict=True))
    if len({*found.values()}) < len(found) or not all(found.values()):
        raise UsageError(f"each {kind} needs a name of its own: {', '.join(found.values())}")
    return found
