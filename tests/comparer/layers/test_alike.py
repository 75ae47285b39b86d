from pathlib import Path

import pytest

from layered import (
    changed,
    layered,
    saved,
    shared_weight,
    swapped_outputs,
    wrong_operator,
    wrong_weight,
    wrong_wire,
)
from torchferry.comparer.layers.by_layers import ByLayers


def test_layers_with_the_same_graph_and_their_own_weights_are_alike(tmp_path: Path) -> None:
    path, program = saved(layered(), tmp_path)
    pieces = ByLayers(path, program).pieces
    assert [piece.layer for piece in pieces] == ["", *(f"layers.{n}" for n in range(4)), ""]
    likes = {piece.layer: piece.like for piece in pieces if piece.like}
    assert likes == dict.fromkeys(("layers.1", "layers.2", "layers.3"), "layers.0")
    assert not any(piece.wrong for piece in pieces)


@pytest.mark.parametrize(
    "change", [wrong_weight, wrong_operator, wrong_wire, shared_weight, swapped_outputs]
)
def test_a_layer_that_is_not_the_same_is_run(change, tmp_path: Path) -> None:
    path, program = saved(layered(), tmp_path)
    found = {p.layer: p for p in ByLayers(changed(path, change), program).pieces}
    other = "layers.2" if change is wrong_operator else "layers.3"
    assert not found[other].like
    assert found["layers.1"].like == "layers.0"
    assert ("layers" in found[other].wrong) == (change in (wrong_weight, shared_weight))


def test_layers_of_equal_weights_are_told_apart_by_what_they_read(tmp_path: Path) -> None:
    """Where two layers hold the same bytes, either may stand in the file for both."""
    model = layered()
    model.layers[3].load_state_dict(model.layers[2].state_dict())
    path, program = saved(model, tmp_path)
    found = {p.layer: p.like for p in ByLayers(changed(path, shared_weight), program).pieces}
    assert found["layers.3"] == "layers.0"
    found = {p.layer: p.like for p in ByLayers(changed(path, wrong_wire), program).pieces}
    assert not found["layers.3"]
