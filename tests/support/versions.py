"""What tests ask of the installed versions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.metadata import version
from typing import Any

import onnxruntime
import pytest

from torchferry.graph.runtime import EMPTY_TENSORS, Ability, has, installed
from torchferry.zoo.inputs.text import CACHE_NAMES

__all__ = ["at_least", "cache_in", "can", "kernels", "needs"]


def can(ability: Ability) -> bool:
    """Whether the installed onnxruntime can do it."""
    return has(installed(), ability)


@contextmanager
def kernels() -> Iterator[None]:
    """Skip a test whose model an onnxruntime that is not the newest refuses to load."""
    state = onnxruntime.capi.onnxruntime_pybind11_state
    try:
        yield
    except (state.NotImplemented, state.Fail) as error:
        if can(EMPTY_TENSORS):  # the newest ability
            raise
        pytest.skip(f"onnxruntime {installed()}: {error}")


def at_least(library: str, wanted: str) -> bool:
    """Whether the installed version of a library is this one or a newer one."""
    have, least = (tuple(map(int, v.split(".")[:2])) for v in (version(library), wanted))
    return have >= least


def cache_in(values: Mapping[str, Any]) -> Any:
    """The cache among named arguments or outputs, whose name changed in transformers."""
    return next(values[name] for name in CACHE_NAMES if name in values)


def needs(ability: Ability) -> pytest.MarkDecorator:
    """Skip a test, with what an older onnxruntime does for the reason."""
    return pytest.mark.skipif(not can(ability), reason=ability.before)
