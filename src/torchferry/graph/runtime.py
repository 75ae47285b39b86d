"""What each onnxruntime can do: kernels by the first version that computes them right.

The versions were found by running every kernel on 1.25.1, 1.26.0, 1.27.0, 1.28.0, 1.29.0,
1.30.0, 1.31.1 and 1.32.0; `tests/graph/test_runtime.py` runs them on the installed one.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

import onnx_ir as ir

from torchferry.errors import UsageError

__all__ = [
    "DOUBLE_COSINES",
    "DOUBLE_NORMS",
    "DOUBLE_PRODUCTS",
    "DOUBLE_SILU",
    "EMPTY_HEADS",
    "EMPTY_TENSORS",
    "HIDDEN_ROWS",
    "LEAST_KEY",
    "NAN_ERF",
    "OLDEST",
    "REQUIREMENT",
    "Ability",
    "check_version",
    "has",
    "installed",
    "lacking",
    "newest_opset",
    "store_least",
    "too_old",
]

OLDEST = "1.25"
"""The oldest onnxruntime that is tested, and that `pyproject.toml` accepts."""

REQUIREMENT = "requirement: "
"""What the name of a node begins with that fails where the rest of its name says why."""

LEAST_KEY = "torchferry.least_onnxruntime"
"""Of a model's metadata: the oldest onnxruntime that computes it right."""


@dataclass(frozen=True)
class Ability:
    """What a kernel does right from some version on.

    Attributes:
        since: the first version.
        before: what an older one does, a sentence without its stop.
    """

    since: str
    before: str


NAN_ERF = Ability("1.27", "Erf of onnxruntime before 1.27 makes -1 of NaN")
HIDDEN_ROWS = Ability(
    "1.28", "Attention of onnxruntime before 1.28 makes NaN of a row that its mask hides"
)
EMPTY_HEADS = Ability(
    "1.29", "MultiHeadAttention of onnxruntime before 1.29 ends the process at size 0"
)
EMPTY_TENSORS = Ability(
    "1.32", "onnxruntime before 1.32 keeps the shape of an empty tensor that is to be reduced"
)
DOUBLE_COSINES = Ability("1.29", "onnxruntime before 1.29 has no Cos for float64")
DOUBLE_NORMS = Ability(
    "1.32", "onnxruntime before 1.32 computes RMS norms of float64 as of float32"
)
DOUBLE_SILU = Ability(
    "1.31", "onnxruntime before 1.31 fuses SiLU of float64 into an operator it has no kernel for"
)
DOUBLE_PRODUCTS = Ability(
    "1.26", "onnxruntime before 1.26 fuses products of float64 into one it has no kernel for"
)

_OPSETS = (("1.25", 26), ("1.32", 28))
_IR_VERSIONS = (("1.25", 13), ("1.32", 14))
"""Version and the newest that it reads."""


def installed() -> str:
    """The version of the installed onnxruntime."""
    import onnxruntime  # it takes long to load, and what only reads a model does not need it

    return str(onnxruntime.__version__)


def check_version(version: str | None) -> str:
    """The onnxruntime that will run a model: the given one, or the installed one.

    Raises:
        UsageError: it is not written as a version, or is older than any that is tested.
    """
    if version is None:
        return installed()
    if not re.fullmatch(r"\d+\.\d+(\.\w+)*", version):
        raise UsageError(f"{version!r} is no version of onnxruntime: write it as 1.28 or 1.28.0")
    if _number(version) < _number(OLDEST):
        raise UsageError(
            f"torchferry knows nothing of onnxruntime {version}: choose {OLDEST} or newer"
        )
    return version


def has(version: str, ability: Ability) -> bool:
    """Whether an onnxruntime of this version can do it.

    >>> has("1.28.0", HIDDEN_ROWS), has("1.27.2", HIDDEN_ROWS)
    (True, False)
    """
    return _number(version) >= _number(ability.since)


def lacking(version: str) -> tuple[Ability, ...]:
    """Return the known abilities that this version of onnxruntime lacks.

    >>> lacking("1.31") == (EMPTY_TENSORS, DOUBLE_NORMS)
    True
    """
    known = (value for value in globals().values() if isinstance(value, Ability))
    return tuple(ability for ability in known if not has(version, ability))


def newest_opset(version: str) -> int:
    """The newest ONNX opset that an onnxruntime reads."""
    return max(opset for since, opset in _OPSETS if _number(since) <= _number(version))


def store_least(model: ir.Model, abilities: Iterable[Ability] = ()) -> str:
    """Write into a model which onnxruntime it needs at least.

    Args:
        model: its metadata are changed; what they say already is kept if it is more.
        abilities: what it relies on, its opset and IR version aside.

    Returns:
        The version.
    """
    opset, ir_version = model.opset_imports.get("", 0), model.ir_version or 0
    least = [OLDEST, *(ability.since for ability in abilities)]
    least += [model.metadata_props.get(LEAST_KEY, OLDEST)]
    for known, wanted in ((_OPSETS, opset), (_IR_VERSIONS, ir_version)):
        least += [since for since, most in known if most >= wanted][:1]
    found = model.metadata_props[LEAST_KEY] = max(least, key=_number)
    return found


def too_old(path: object, least: str | None) -> str:
    """Why the installed onnxruntime must not run a model; empty if it may.

    Args:
        path: of the model.
        least: what its metadata say under `LEAST_KEY`.
    """
    if not least or _number(installed()) >= _number(least):
        return ""
    return (
        f"{path} needs onnxruntime {least} or newer, and the installed {installed()} refuses it "
        f"or computes something else. Run pip install 'onnxruntime>={least}', or export the "
        f"model again with --onnxruntime {installed()}"
    )


def _number(version: str) -> tuple[int, int]:
    """Major and minor version, which tell kernels apart; (0, 0) of what is no version."""
    found = re.match(r"(\d+)\.(\d+)", version)
    return (int(found[1]), int(found[2])) if found else (0, 0)
