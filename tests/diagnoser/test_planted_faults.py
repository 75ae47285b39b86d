"""A fault is put into one submodule of a working model: that module and that line are named."""

from __future__ import annotations

import random

import pytest
from planting import FAULTS, is_named, lines, place_for, plant

from torchferry.diagnoser import Diagnosis, diagnose
from torchferry.zoo import catalogue

MODELS = ("mlp", "tiny-bert", "tiny-llm", "tiny-resnet", "tiny-vit")


def diagnosed(model: str, fault: str, seed: int) -> tuple[str, Diagnosis]:
    built = catalogue.build(model)
    inputs = built.input_sets[:2]
    place = place_for(built.model, inputs[1], random.Random(seed))  # noqa: S311  (any will do)
    plant(built.model.get_submodule(place), fault)
    return place, diagnose(built.model, inputs, exporter=FAULTS[fault].exporter)


def check(model: str, fault: str, seed: int) -> None:
    place, found = diagnosed(model, fault, seed)
    assert [culprit.places for culprit in found.culprits] == [(place,)], str(found)
    status = found.culprits[0].status
    assert is_named(fault, status.line), status
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


@pytest.mark.sample(3)
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
