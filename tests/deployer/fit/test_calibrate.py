"""Sensitivity and calibration leave the model as it was, and improve what is written."""

from dataclasses import replace

import pytest
import torch

from torchferry.deployer.fit.calibrate import find_layers, fit_grids
from torchferry.deployer.fit.sensitivity import parameters_by_name, replaced_weight
from torchferry.graph import io
from torchferry.quantizer import RECIPES, round_to_grid
from torchferry.quantizer.linears import find_linears
from torchferry.zoo.catalogue import build


@pytest.fixture(scope="module")
def llama(deployed):
    model = build("llama").model
    linears = list(find_linears(io.load(deployed[0] / "onnx/model.onnx").graph))
    return model, linears[:-1]


def rows(seed, count=6):
    generator = torch.Generator().manual_seed(seed)
    return [torch.randint(3, 99, (1, 32), generator=generator) for _ in range(count)]


def layer_error(model, linears, grids):
    """How far the last hidden states move on tokens that calibration did not see."""
    parameters = parameters_by_name(model)
    ids = torch.cat(rows(9))
    with torch.no_grad():
        before = model.model(ids).last_hidden_state
        kept = {linear.name: parameters[linear.name].data for linear in linears}
        for linear in linears:
            parameters[linear.name].data = torch.from_numpy(grids[linear.name].values())
        after = model.model(ids).last_hidden_state
        for name, data in kept.items():
            parameters[name].data = data
    return float((after - before).norm())


@pytest.mark.parametrize(("symmetric", "share"), [(False, 0.9), (True, 1.0)])
def test_fitted_grids_move_the_model_less_than_the_nearest_ones(llama, symmetric, share):
    model, linears = llama
    before = {name: p.clone() for name, p in parameters_by_name(model).items()}
    fitted = fit_grids(
        model, linears, replace(RECIPES["int4"], symmetric=symmetric), rows(1, 12),
        parameters=parameters_by_name(model), scaled=[one.name for one in linears],
    )  # fmt: skip
    assert set(fitted) == {linear.name for linear in linears}
    for name, parameter in parameters_by_name(model).items():
        assert torch.equal(parameter, before[name])
    nearest = {one.name: round_to_grid(one.rows(0, one.shape[0]), 4) for one in linears}
    assert layer_error(model, linears, fitted) < share * layer_error(model, linears, nearest)


def test_the_head_is_fitted_last_and_is_not_scaled(deployed):
    model = build("llama").model
    linears = list(find_linears(io.load(deployed[0] / "onnx/model.onnx").graph))
    names = [one.name for one in linears]
    said = []
    grids = fit_grids(
        model, linears, RECIPES["int4"], rows(1, 12),
        parameters=parameters_by_name(model), scaled=names, begin=said.append,
    )  # fmt: skip
    assert said[-1] == "calibrate the head"
    assert list(grids)[-1] == names[-1]
    assert grids[names[-1]].factors is None
    assert grids[names[-1]].values().shape == (99, 32)


def test_weights_with_eight_bits_are_not_fitted(llama):
    model, linears = llama
    wide = {linears[0].name}
    grids = fit_grids(
        model,
        linears,
        RECIPES["int4"],
        rows(1, 2),
        wide=wide,
        parameters=parameters_by_name(model),
    )
    assert wide.isdisjoint(grids)


def test_the_layers_are_the_longest_list(llama):
    model, _ = llama
    assert find_layers(model) is model.model.layers
    assert find_layers(torch.nn.Linear(2, 2)) is None
    experts = [torch.nn.ModuleList(torch.nn.Linear(2, 2) for _ in range(4)) for _ in range(2)]
    outer = torch.nn.ModuleList(torch.nn.ModuleDict({"experts": one}) for one in experts)
    assert find_layers(torch.nn.ModuleDict({"layers": outer})) is outer
    assert fit_grids(torch.nn.Linear(2, 2), [], RECIPES["int4"], rows(1), parameters={}) == {}


def test_a_weight_is_replaced_for_a_while(llama):
    model, linears = llama
    parameter = parameters_by_name(model)[linears[0].name]
    before = parameter.clone()
    grid = round_to_grid(linears[0].rows(0, 32) * 0 + 1, 4)
    with replaced_weight(parameter, linears[0], grid):
        assert (parameter == 1).all()
    assert torch.equal(parameter, before)
