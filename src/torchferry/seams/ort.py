"""What onnxruntime has behind its Python classes."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import onnxruntime

from torchferry.seams.table import lacking, probe, reach

__all__ = ["c_session", "c_state", "c_value", "kernel_definitions", "ort_errors", "sharer"]

_STATE = "onnxruntime.capi.onnxruntime_pybind11_state"
_ERRORS = ("Fail", "InvalidArgument", "InvalidGraph", "NotImplemented", "RuntimeException",
           "InvalidProtobuf", "NoSuchFile", "EPFail", "EngineError", "ModelLoaded")  # fmt: skip


def c_value(value: onnxruntime.OrtValue) -> Any:
    """The value itself, which gives its memory as DLPack: numpy has no bfloat16 and no float8."""
    found = getattr(value, "_ortvalue", None)
    if found is None:
        raise lacking("onnxruntime.OrtValue._ortvalue")
    return found


def sharer() -> Callable[[Any], Any]:
    """A function: dense tensor of PyTorch → value, as `c_value` gives it, in the same memory.

    DLPack has a code of its own for bool, which onnxruntime before 1.32 does not know.
    """
    import torch

    to_dlpack: Any = vars(torch)["to_dlpack"]  # public, though torch's annotations lack it
    make = c_state().OrtValue.from_dlpack

    def share(tensor: Any) -> Any:
        return make(to_dlpack(tensor))

    def share_bytes(tensor: Any) -> Any:
        if tensor.dtype is torch.bool:
            return make(to_dlpack(tensor.view(torch.uint8)), True)
        return make(to_dlpack(tensor))

    try:
        share(torch.ones(1, dtype=torch.bool))
    except RuntimeError:
        return share_bytes
    return share


def c_session(session: onnxruntime.InferenceSession) -> Any:
    """The session itself, which runs without converting names and values at each call."""
    found = getattr(session, "_sess", None)
    if found is None:
        raise lacking("onnxruntime.InferenceSession._sess")
    return found


def c_state() -> Any:
    """The module of onnxruntime's own classes: values, devices, vectors of values."""
    return reach(_STATE)


@cache
def ort_errors() -> tuple[type[Exception], ...]:
    """The exceptions that onnxruntime raises, as far as this version has them."""
    state = probe(_STATE)
    return (RuntimeError, *(getattr(state, n) for n in _ERRORS if hasattr(state, n)))


def kernel_definitions() -> list[Any]:
    """Every kernel of the installed onnxruntime; empty where it does not tell."""
    return getattr(probe(_STATE), "get_all_opkernel_def", list)()
