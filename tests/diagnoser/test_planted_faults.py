"""A fault is put into one submodule of a working model: that module and that line are named."""

from __future__ import annotations

import functools
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from torchferry.capturer import accept_aliases
from torchferry.diagnoser import Diagnosis, diagnose
from torchferry.diagnoser.tree import Piece, build_tree, recorded
from torchferry.values import clone
from torchferry.zoo import catalogue

LIBRARY = torch.library.Library("torchferry_planted", "FRAGMENT")
LIBRARY.define("opaque(Tensor x) -> Tensor")


@functools.partial(LIBRARY.impl, "opaque", dispatch_key="CPU")
def opaque(x: torch.Tensor) -> torch.Tensor:
    """An operator of which PyTorch does not know what it returns."""
    return x.clone()


def data_dependent_if(module: nn.Module, x: torch.Tensor) -> None:
    if x.sum() > 1e30:  # fault: data_dependent_if
        x.add_(1)


def graph_break(module: nn.Module, x: torch.Tensor) -> None:
    x.untyped_storage().data_ptr()  # fault: graph_break


def unsupported_op(module: nn.Module, x: torch.Tensor) -> None:
    torch.ops.torchferry_planted.opaque(x)  # fault: unsupported_op


def specialised_dim(module: nn.Module, x: torch.Tensor) -> None:
    torch.zeros(int(x.shape[0]))  # fault: specialised_dim


def write_on_a_view(module: nn.Module, x: torch.Tensor) -> None:
    module.planted[1:].add_(1)


FAULTS: dict[str, tuple[Callable[[nn.Module, torch.Tensor], None], str]] = {
    "data_dependent_if": (data_dependent_if, "fx"),
    "graph_break": (graph_break, "fx"),
    "unsupported_op": (unsupported_op, "fx"),
    "specialised_dim": (specialised_dim, "fx"),
    "write_on_a_view": (write_on_a_view, "to_onnx"),
}
MODELS = ("mlp", "tiny-bert", "tiny-llm", "tiny-resnet", "tiny-vit")


def lines() -> dict[str, int]:
    """Where each fault stands in this file."""
    found = {}
    for number, line in enumerate(Path(__file__).read_text("utf-8").splitlines(), 1):
        _, _, name = line.partition("  # fault" + ": ")
        if name:
            found[name.split()[0]] = number
    return found


def plant(module: nn.Module, fault: Callable[[nn.Module, torch.Tensor], None]) -> None:
    """Let a module do something more each time it is called."""
    original = module.forward
    module.register_buffer("planted", torch.zeros(3))

    @functools.wraps(original)
    def forward(*args: Any, **kwargs: Any) -> Any:
        given = [a for a in (*args, *kwargs.values()) if isinstance(a, torch.Tensor)]
        x = next(x for x in given if x.ndim)
        # A graph remembers lines of forward only: of what forward calls, the line that calls it.
        fault(module, x)  # fault: write_on_a_view
        return original(*args, **kwargs)

    module.forward = forward


def places(model: nn.Module, inputs: dict[str, Any]) -> Iterator[Piece]:
    """Submodules whose first tensor is a floating-point one with a batch in front."""
    root = build_tree(Piece, model)
    batch = len(next(v for v in inputs.values() if isinstance(v, torch.Tensor)))
    with recorded(root), torch.no_grad():
        model(**accept_aliases(model, clone(inputs)))
    for piece in root.walk():
        for call in piece.calls[:1]:
            given = [*call.args, *call.kwargs.values()]
            first = next((g for g in given if isinstance(g, torch.Tensor) and g.ndim), None)
            if first is not None and first.is_floating_point() and len(first) == batch:
                yield piece


def diagnosed(model: str, fault: str, seed: int) -> tuple[str, Diagnosis]:
    built = catalogue.build(model)
    inputs = built.input_sets[:2]
    found = sorted({piece.path for piece in places(built.model, inputs[1])})
    place = random.Random(seed).choice(found)  # noqa: S311  (which one does not matter)
    plant(built.model.get_submodule(place), FAULTS[fault][0])
    return place, diagnose(built.model, inputs, exporter=FAULTS[fault][1])


def check(model: str, fault: str, seed: int) -> None:
    place, found = diagnosed(model, fault, seed)
    assert [culprit.places for culprit in found.culprits] == [(place,)], str(found)
    status = found.culprits[0].status
    assert status.line is not None, status
    assert f"{Path(__file__).name}:{lines()[fault]}:" in status.line
    assert status.advice
    # What contains it says so, and works once it is out of the way.
    for piece in found.tree.walk():
        if (
            piece.calls
            and piece.path != place
            and f"{place}.".startswith(f"{piece.path}." if piece.path else "")
        ):
            assert piece.exporter_status is not None
            assert piece.exporter_status.blame == (place,)


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_in_a_small_model_is_found(fault: str) -> None:
    check("mlp", fault, seed=1)


@pytest.mark.slow
@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("model", MODELS)
def test_a_fault_in_a_random_module_is_found(model: str, fault: str) -> None:
    check(model, fault, seed=len(model) + len(fault))


def test_every_fault_has_its_line() -> None:
    assert lines().keys() == FAULTS.keys()
