from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import torchferry as tf
from layered import (
    Layered,
    arguments,
    changed,
    layered,
    saved,
    shared_weight,
    swapped_outputs,
    wrong_operator,
    wrong_weight,
    wrong_wire,
)
from torchferry.errors import UsageError
from torchferry.exporter.verify.verify import Check
from torchferry.exporter.verify.verify_layers import LayerSession, LayerSides
from torchferry.judge import Tolerance
from torchferry.observer import Observation


def check(model: nn.Module, path: Path, program: Any, call: int = 0) -> Check:
    sets = [(arguments(2, 3), {}), (arguments(4, 5), {})]
    seen = Observation.from_inputs(model, sets)
    sides = LayerSides(
        model, seen, LayerSession(path, program), Tolerance.usual(model), program=program,
        joined=(), decided=(), conditions=(),
    )  # fmt: skip
    one = seen.calls[call]
    return sides.check(seen.normalized(one), seen.sizes_of(one), made=False)


def test_a_right_model_is_right(tmp_path: Path) -> None:
    model = layered()
    path, program = saved(model, tmp_path)
    found = check(model, path, program)
    assert found.ok, found
    assert {one.name for one in found.outputs} == {"scores", *(f"kept.{n}" for n in range(4))}


@pytest.mark.sample(3)
@pytest.mark.parametrize("call", [0, 1], ids=["also from end to end", "by layers alone"])
@pytest.mark.parametrize(
    ("change", "layer"),
    [
        (wrong_weight, "layers.3"), (wrong_operator, "layers.2"), (wrong_wire, "layers.3"),
        (shared_weight, "layers.3"), (swapped_outputs, "layers.2"),
    ],
)  # fmt: skip
def test_the_layer_at_fault_is_named(change, layer: str, call: int, tmp_path: Path) -> None:
    model = layered()
    path, program = saved(model, tmp_path)
    found = check(model, changed(path, change), program, call)
    assert found.failed
    assert str(found.blame).startswith(f"{layer} makes")
    assert ("layers.3.up.weight" in str(found.blame)) == (change is wrong_weight)
    assert ("is not the model's" in str(found.blame)) == (change in (wrong_weight, shared_weight))


def test_a_branch_that_one_layer_takes_at_one_size_is_found() -> None:
    """All layers run their own code at every size, whatever their weights are."""

    class Odd(Layered):
        def __init__(self) -> None:
            super().__init__()
            self.layers[2].register_forward_hook(self.double)

        @staticmethod
        def double(_: nn.Module, given: Any, output: Any) -> Any:
            return (output[0] * 2, output[1]) if given[0].shape[1] == 1 else output

    torch.manual_seed(0)
    sets = [(arguments(2, 3), {}), (arguments(4, 5), {})]
    made = tf.export(Odd().eval(), sets, verify="layers")
    assert "verified where tokens_dim_1" in made.report.verdict


def test_an_export_says_what_was_run_and_what_follows() -> None:
    made = tf.export(layered(), [(arguments(2, 3), {}), (arguments(4, 5), {})], verify="layers")
    assert made.report.ok, made.report.problems
    assert "by layers, 1 of 4 run, from end to end once" in made.report.verdict
    assert made.report.data["layers"]["like"] == {f"layers.{n}": "layers.0" for n in (1, 2, 3)}
    (section,) = [one for one in made.report.sections if one.title == "Layers"]
    assert section.blocks[0].rows[1][-1] == "layers.1 … layers.3 (3)"
    assert "byte for byte" in section.blocks[0].note


def test_a_branch_on_a_size_is_a_limit() -> None:
    class Branches(Layered):
        def forward(self, tokens: torch.Tensor, shift: torch.Tensor) -> dict[str, Any]:
            found = super().forward(tokens, shift)
            return found if tokens.shape[1] > 1 else {**found, "scores": found["scores"] + 1}

    torch.manual_seed(0)
    sets = [(arguments(2, 3), {}), (arguments(4, 5), {})]
    made = tf.export(Branches().eval(), sets, verify="layers")
    assert "verified where tokens_dim_1 > 1" in made.report.verdict


def test_what_cannot_be_verified_by_layers_is_refused() -> None:
    sets = [(arguments(2, 3), {}), (arguments(4, 5), {})]
    with pytest.raises(UsageError, match="verify layers needs exporter to_onnx"):
        tf.export(layered(), sets, verify="layers", exporter="onnx_dynamo")
    with pytest.raises(UsageError, match="unknown way to verify 'parts'"):
        tf.export(layered(), sets, verify="parts")


def test_what_cannot_be_cut_is_verified_whole_unless_layers_were_asked_for(monkeypatch) -> None:
    class Noisy(nn.Module):
        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            return x + torch.rand_like(x), 2 * x

    sets = [((torch.rand(2, 3),), {}), ((torch.rand(4, 5),), {})]
    with pytest.raises(UsageError, match="draws random numbers"):
        tf.export(Noisy(), sets, verify="layers")
    monkeypatch.setattr("torchferry.exporter.plan.way_to_verify", lambda *_: "layers")
    made = tf.export(Noisy(), sets)
    assert made.report.data["layers"] is None
    assert made.report.data["checks"]
