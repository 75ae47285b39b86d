"""Weights that GPTQ or AWQ stored: codes of few bits in words of 32, read as floats on their grid.

The formats are those that GPTQModel and AutoAWQ write
(https://github.com/ModelCloud/GPTQModel, https://github.com/casper-hansen/AutoAWQ); neither
library is needed. A weight is ``scale * (code - zero)``, which float32 holds to the last bit.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import nn

from torchferry.errors import UsageError
from torchferry.sources.mapped import checkpoint_files, map_file, mapped_tensors, read_json

__all__ = [
    "Packing", "Unpacked", "find_scattered", "read_packing", "unpack_parameters", "unpack_weights",
]  # fmt: skip

_WORD = 32
_PARTS = ("qweight", "qzeros", "scales", "g_idx")
_ORDER = [0, 4, 1, 5, 2, 6, 3, 7]  # where AWQ puts the codes of eight columns within a word
_ONES = {2: 0x55555555, 4: 0x11111111, 8: 0x01010101}  # 1 in every code of a word
_FORMATS = {"gptq": ("gptq", "gptq_v2"), "awq": ("gemm",)}
_BITS = {"gptq": (2, 4, 8), "awq": (4,)}


@dataclass(frozen=True)
class Packing:
    """How the weights of a folder are stored.

    Attributes:
        method: ``gptq`` or ``awq``.
        form: ``gptq`` (a stored zero point is 1 too small), ``gptq_v2``, or AWQ's ``gemm``.
        group: columns that share a scale; -1 for all of a row.
    """

    method: str
    form: str
    group: int


@dataclass(frozen=True)
class Unpacked:
    """The tensors of a folder as a model without quantization has them.

    Attributes:
        tensors: by name; weights that were packed are float32, (outputs, inputs).
        names: of the weights that were packed.
    """

    tensors: dict[str, torch.Tensor]
    names: frozenset[str]


def read_packing(folder: Path) -> Packing | None:
    """What ``config.json`` says of packed weights; ``None`` if it says of no GPTQ or AWQ.

    Args:
        folder: of a model.

    Raises:
        UsageError: the weights are packed in a way that is not read.
    """
    path = folder / "config.json"
    config = read_json(path) if path.is_file() else None
    said = config.get("quantization_config") if isinstance(config, dict) else None
    method = str(said.get("quant_method", "")).lower() if isinstance(said, dict) else ""
    if not isinstance(said, dict) or method not in _FORMATS:
        return None
    key, usual = ("version", "gemm") if method == "awq" else ("checkpoint_format", "gptq")
    form = str(said.get(key) or said.get("format") or usual).lower()
    bits = said.get("bits", said.get("w_bit", 4))
    if form not in _FORMATS[method]:
        raise UsageError(
            f"{path}: weights of {method} in the format {form} are not read, only those in "
            f"{' or '.join(_FORMATS[method])}: save the model in one of these"
        )
    if bits not in _BITS[method]:
        counts = ", ".join(map(str, _BITS[method]))
        raise UsageError(
            f"{path}: weights of {method} in {bits} bits are not read, only those in {counts}: "
            "give the model in floating point"
        )
    group = said.get("group_size") or said.get("q_group_size") or 128
    return Packing(method, form, int(group))


def unpack_weights(
    packing: Packing, tensors: Mapping[str, torch.Tensor], folder: Path
) -> Unpacked:
    """The tensors of a folder, each packed weight as one tensor of floats.

    Args:
        packing: see `read_packing`.
        tensors: as the files hold them: ``NAME.qweight``, ``.qzeros``, ``.scales``, ``.g_idx``.
        folder: for messages.

    Raises:
        UsageError: a part of a weight is missing, or its shape does not fit the others.
    """
    owners = [name.removesuffix(".qweight") for name in tensors if name.endswith(".qweight")]
    parts = {f"{owner}.{part}" for owner in owners for part in _PARTS}
    result = {name: x for name, x in tensors.items() if name not in parts}
    for owner in owners:
        codes, zeros, scales, groups = _read(packing, tensors, owner, folder)
        codes -= zeros[groups]
        result[f"{owner}.weight"] = (codes * scales.float()[groups]).T.contiguous()
    return Unpacked(result, frozenset(f"{owner}.weight" for owner in owners))


def find_scattered(folder: Path, block: int) -> str:
    """The first packed weight of a folder whose groups are no runs of whole blocks, or empty.

    GPTQ with ``desc_act`` takes columns into a group by how much they matter, not side by side.

    Args:
        folder: of a model.
        block: columns that share a scale in a runtime's kernel.
    """
    packing = read_packing(folder)
    if packing is None:
        return ""
    tensors = mapped_tensors(map(map_file, checkpoint_files(folder)))
    for owner in (name.removesuffix(".qweight") for name in tensors if name.endswith(".qweight")):
        groups = tensors.get(f"{owner}.g_idx")
        if groups is None and packing.group % block and packing.group > 0:
            return f"{owner}.weight"
        whole = None if groups is None else groups[: len(groups) // block * block].view(-1, block)
        if whole is not None and (whole != whole[:, :1]).any():
            return f"{owner}.weight"
    return ""


def unpack_parameters(model: nn.Module) -> None:
    """Replace, in place, parameters that are tensors made of tensors, as torchao's, by floats.

    What such a class does to the other operand of a product, as rounding it, is not done any more.
    """
    plain = {
        packed: nn.Parameter(packed.dequantize(), requires_grad=False)
        for packed in model.parameters()
        if hasattr(type(packed), "__tensor_flatten__")
    }
    for module in model.modules() if plain else ():
        for name, packed in list(module.named_parameters(recurse=False)):
            if packed in plain:  # tied weights stay tied
                setattr(module, name, plain[packed])


def _read(
    packing: Packing, tensors: Mapping[str, torch.Tensor], owner: str, folder: Path
) -> tuple[torch.Tensor, ...]:
    """Codes (K, N) and zero points (groups, N), int32; scales (groups, N); groups of K columns."""
    found = {part: tensors.get(f"{owner}.{part}") for part in _PARTS}
    words, zeros, scales, groups = found.values()
    if words is None or zeros is None or scales is None:
        lost = next(part for part in _PARTS if found[part] is None)
        raise UsageError(f"{folder} holds {owner}.qweight without {owner}.{lost}: copy it again")
    shapes = {part: list(x.shape) for part, x in found.items() if x is not None}
    if any(len(x) != 2 for part, x in shapes.items() if part != "g_idx"):
        raise _misshapen(folder, owner, shapes)
    awq = packing.method == "awq"
    across = words.shape[1 if awq else 0] * _WORD  # bits of all codes along the packed axis
    columns = len(words) if awq else len(groups) if groups is not None else across // 4
    bits = 4 if awq else across // max(columns, 1)
    if bits not in _BITS[packing.method] or across % bits:
        raise _misshapen(folder, owner, shapes)
    if packing.form == "gptq":
        zeros = zeros + _ONES[bits]  # words were made less by 1 in every code, with borrows
    codes = _codes(words, bits, ordered=awq) if awq else _codes(words.T, bits).T
    zeros = _codes(zeros, bits, ordered=awq)
    if awq or groups is None:
        size = columns if packing.group < 0 else packing.group
        groups = torch.arange(columns) // size
    sizes = len(scales), scales.shape[1]
    fits = codes.shape == (columns, sizes[1]) and zeros.shape == sizes
    if not fits or not 0 <= int(groups.min()) <= int(groups.max()) < sizes[0]:
        raise _misshapen(folder, owner, shapes)
    return codes.contiguous(), zeros, scales, groups.long()


def _codes(words: torch.Tensor, bits: int, *, ordered: bool = False) -> torch.Tensor:
    """The codes in each word, along the last axis; int32."""
    places = torch.tensor(_ORDER if ordered else range(_WORD // bits), dtype=torch.int32)
    codes: torch.Tensor = words[..., None] >> (bits * places) & (2**bits - 1)
    return codes.flatten(-2)


def _misshapen(folder: Path, owner: str, shapes: Mapping[str, list[int]]) -> UsageError:
    return UsageError(
        f"{folder} holds the parts of {owner} with shapes that do not fit each other or "
        f"config.json: {', '.join(f'{part} {shape}' for part, shape in shapes.items())}; "
        "is config.json of the same model?"
    )
