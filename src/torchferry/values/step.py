"""A model's state as an argument and a result of its calls, and the state's initial value.

A model that changes its own buffers and attributes is exported as a function: the state goes in
as one more argument, a dictionary, and comes out beside what the model returns. The metadata of
the ONNX model hold the state before the first call.
"""

from __future__ import annotations

import base64
import json
import math
import zlib
from collections.abc import Mapping
from typing import Any, NamedTuple

import torch

from torchferry.errors import UsageError
from torchferry.values.dtype import element_type, torch_dtype

__all__ = ["LIFTED", "Step", "read_state", "state_text", "write_state"]

LIFTED = "lifted_state"
"""The argument that holds the state by name; its graph inputs are called ``state.NAME``."""

_COMPLEX = {14: torch.complex64, 15: torch.complex128}
_MOST = 2**28  # characters of the metadata, which have to fit into 2 GiB with the graph


class Step(NamedTuple):
    """The result of one call of a model whose state is lifted.

    Attributes:
        outputs: what the model itself returns.
        state_next: the state for the next call, by name.
    """

    outputs: Any
    state_next: dict[str, Any]


def state_text(value: Any) -> str:
    """Dtype and sizes of a piece of state, for people to read.

    >>> state_text(torch.zeros(2, 8)), state_text(3)
    ('float32, 2 x 8', 'an integer')
    """
    if not isinstance(value, torch.Tensor):
        return "an integer"
    sizes = " x ".join(map(str, value.shape)) or "scalar"
    return f"{str(value.dtype).removeprefix('torch.')}, {sizes}"


def write_state(state: Mapping[str, Any]) -> str:
    """The values of a state as one JSON text: dtype, shape, and bytes (zlib, then base64).

    Args:
        state: tensors, and integers, which are stored as int64 scalars.

    Raises:
        UsageError: they are larger than metadata can be, or ONNX has no such dtype.

    >>> read_state(write_state({"tail": torch.ones(2), "step": 3}))
    {'tail': tensor([1., 1.]), 'step': tensor(3)}
    """
    text = json.dumps({name: _entry(name, torch.as_tensor(v)) for name, v in state.items()})
    if len(text) > _MOST:
        raise UsageError(
            f"the initial state takes {len(text):,} characters of the model's metadata, which may "
            f"have {_MOST:,}: reset the model before it is exported, as zeros take little"
        )
    return text


def _entry(name: str, tensor: torch.Tensor) -> dict[str, Any]:
    plain = tensor.detach().cpu().contiguous().reshape(-1)
    number = element_type(plain.dtype)
    if number not in _COMPLEX and torch_dtype(number) is None:
        raise UsageError(f"state {name} is {tensor.dtype}, which no ONNX model can hold")
    packed = zlib.compress(plain.view(torch.uint8).numpy().tobytes() if plain.numel() else b"")
    return {
        "element": number,
        "text": state_text(tensor),
        "shape": list(tensor.shape),
        "data": base64.b64encode(packed).decode("ascii"),
    }


def read_state(text: str) -> dict[str, torch.Tensor]:
    """Read what `write_state` wrote.

    Raises:
        UsageError: the text is something else.
    """
    try:
        return {str(name): _tensor(**entry) for name, entry in json.loads(text).items()}
    except (ValueError, TypeError, AttributeError, RecursionError, zlib.error) as error:
        raise UsageError(
            f"the model's initial state cannot be read ({type(error).__name__}: {error}): the "
            "file was changed, or a newer torchferry wrote it; export it again"
        ) from error


def _tensor(*, element: int, text: str, shape: list[int], data: str) -> torch.Tensor:
    dtype = _COMPLEX.get(element) or torch_dtype(element)
    if dtype is None or not all(isinstance(size, int) and size >= 0 for size in shape):
        raise ValueError(f"no tensor is {text}")
    wanted = math.prod(shape) * dtype.itemsize
    reader = zlib.decompressobj()
    content = reader.decompress(base64.b64decode(data, validate=True), wanted + 1)
    if len(content) != wanted or not reader.eof:
        raise ValueError(f"{len(content)} bytes are not {text}")
    if not wanted:
        return torch.empty(shape, dtype=dtype)
    return torch.frombuffer(bytearray(content), dtype=dtype).reshape(shape)
