"""What onnxruntime has behind its Python classes."""

from __future__ import annotations

from functools import cache
from typing import Any

import onnxruntime

from torchferry.seams.table import lacking, probe, reach

__all__ = ["c_session", "c_state", "c_value", "kernel_definitions", "ort_errors"]

_STATE = "onnxruntime.capi.onnxruntime_pybind11_state"
_ERRORS = ("Fail", "InvalidArgument", "InvalidGraph", "NotImplemented", "RuntimeException",
           "InvalidProtobuf", "NoSuchFile", "EPFail", "EngineError", "ModelLoaded")  # fmt: skip


def c_value(value: onnxruntime.OrtValue) -> Any:
    """The value itself, which gives its memory as DLPack: numpy has no bfloat16 and no float8."""
    found = getattr(value, "_ortvalue", None)
    if found is None:
        raise lacking("onnxruntime.OrtValue._ortvalue")
    return found


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
