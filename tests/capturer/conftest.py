"""What tests of the capturer share: capture a model from calls, and hold it to each of them."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from torchferry.capturer import Captured, capture
from torchferry.capturer.trial.agreement import compare_calls
from torchferry.observer import observe
from torchferry.values.clone import clone

Sets = list[Any]


@pytest.fixture
def captured() -> Callable[..., Captured]:
    """``captured(model, sets, **options)``: observe, capture, and compare every call."""

    def run(model: torch.nn.Module, sets: Sets, **options: Any) -> Captured:
        model.eval()
        with torch.no_grad(), observe(model) as seen, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for one in sets:
                if isinstance(one, dict):
                    model(**clone(one))
                else:
                    model(*clone(one))
        found = capture(model, seen, **options)
        checks = compare_calls(found.program, seen, found.joined, model=model)
        assert len(checks) == len(sets)
        told = [f"{one.sizes}: {one.verdict.numbers}" for one in checks if not one.ok]
        assert not found.fixed, [str(one) for one in found.fixed]
        assert not told, told
        return found

    return run


@pytest.fixture
def line() -> Callable[[str], str]:
    """``line("mark")``: the line of the test's own file that ends with ``  # mark``."""

    def find(mark: str) -> str:
        file = inspect.stack()[1].filename
        for number, text in enumerate(Path(file).read_text().splitlines(), 1):
            if text.endswith(f"  # {mark}"):
                return f"{file}:{number}: {text.strip()}"
        raise LookupError(mark)

    return find


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    """Libraries warn while their models are built; the capturer silences what it runs itself."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", module=r"(torch|transformers)\.")
        yield
