"""Names of constants that an exported program can have as attributes.

A constant that ``forward`` makes is called after where Dynamo found it. Where a function stands in
the place of ``forward`` (a hook, a wrapper) that is no attribute: `torch.export.export` gives
``forward.__closure__[1].cell_contents.lifted_tensor_0``, and ``program.module()`` raises.
"""

from __future__ import annotations

import re

from torch.export import ExportedProgram

__all__ = ["name_lifted"]

# Attributes of modules, one below the other; "0" is one of a Sequential. ``forward`` is a method.
_ATTRIBUTE = re.compile(r"(?!forward\.)\w+(\.\w+)*")


def name_lifted(program: ExportedProgram) -> ExportedProgram:
    """Give what is called otherwise than an attribute a name of its own, in place.

    Args:
        program: as ``torch.export.export`` gives it.

    Returns:
        The program.
    """
    taken = {*program.constants, *program.state_dict}
    named: dict[str, str] = {}
    for spec in program.graph_signature.input_specs:
        old = spec.target
        if old not in program.constants or _ATTRIBUTE.fullmatch(old):
            continue
        if old not in named:
            free = (f"lifted_{number}" for number in range(len(taken) + 1))
            named[old] = next(name for name in free if name not in taken)
            taken.add(named[old])
            program.constants[named[old]] = program.constants.pop(old)
        spec.target = named[old]
    return program
