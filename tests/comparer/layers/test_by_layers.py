from pathlib import Path

import numpy as np
import onnx_ir as ir
import pytest
import torch
from torch import nn

import torchferry as tf
from layered import arguments, changed, layered, saved, wrong_operator
from torchferry.comparer.layers.by_layers import ByLayers
from torchferry.errors import UsageError
from torchferry.judge import Tolerance


@pytest.mark.parametrize("sizes", [(2, 3), (1, 1), (3, 5)])
def test_every_piece_is_right_on_the_values_of_the_program(sizes, tmp_path: Path) -> None:
    model = layered()
    found = ByLayers(*saved(model, tmp_path))
    held = [*found.run((arguments(*sizes), {}), Tolerance.usual(model))]
    assert {one.layer for one in held if one.verdict} == {"", "layers.0"}
    assert {one.verdict.kind for one in held if one.verdict} == {"equal"}
    assert {one.name for one in held if not one.verdict} == {"kept.1", "kept.2", "kept.3"}
    everything = [*found.run((arguments(*sizes), {}), Tolerance.usual(model), every=True)]
    assert {one.layer for one in everything} == {"", *(f"layers.{n}" for n in range(4))}


@pytest.mark.parametrize("sizes", [(2, 3), (1, 1), (4, 2)])
def test_all_pieces_in_a_row_compute_what_the_model_does(sizes, tmp_path: Path) -> None:
    model = layered()
    given = arguments(*sizes)
    outputs = ByLayers(*saved(model, tmp_path)).outputs((given, {}))
    with torch.no_grad():
        right = model(*given)
    assert tf.max_diff(right["scores"], outputs["scores"]).abs < 1e-5
    assert len(outputs) == 5


def test_a_piece_that_is_wrong_is_named_and_leaves_the_next_ones_right(tmp_path: Path) -> None:
    model = layered()
    path, program = saved(model, tmp_path)
    found = ByLayers(changed(path, wrong_operator), program)
    held = [*found.run((arguments(2, 3), {}), Tolerance.usual(model))]
    assert {one.layer for one in held if one.verdict and not one.verdict.ok} == {"layers.2"}


@pytest.mark.parametrize(("divisor", "kind"), [(1e-5, "rounding"), (1.1e-5, "differs")])
def test_what_rounding_explains_passes(divisor: float, kind: str, tmp_path: Path) -> None:
    class Sensitive(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.sin(x * 1e5)

    def divide(model: ir.Model) -> None:
        (product,) = [node for node in model.graph if node.op_type == "Mul"]
        product.op_type = "Div"
        factor = next(value for value in product.inputs if value.is_initializer())
        factor.const_value = ir.tensor(np.float32(divisor), name=factor.name)
        assert product.inputs[1] is factor

    torch.manual_seed(0)
    given = (torch.rand(3, 4),)
    made = tf.to_onnx(Sensitive(), given)
    made.save(tmp_path / "model.onnx")
    found = ByLayers(changed(tmp_path / "model.onnx", divide), made.program)
    (held,) = found.run((given, {}), Tolerance.usual(Sensitive(), given))
    assert held.verdict.kind == kind


def test_a_model_that_draws_random_numbers_is_refused(tmp_path: Path) -> None:
    class Noisy(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x + torch.rand_like(x)

    made = tf.to_onnx(Noisy(), (torch.ones(2, 3),))
    made.save(tmp_path / "model.onnx")
    with pytest.raises(UsageError, match="draws random numbers"):
        ByLayers(tmp_path / "model.onnx", made.program)
