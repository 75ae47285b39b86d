"""What 4 bits cost, measured one weight at a time."""

import torch

from torchferry.deployer.fit.sensitivity import measure_sensitivity, parameters_by_name, role_of
from torchferry.graph import io
from torchferry.quantizer import RECIPES
from torchferry.quantizer.linears import find_linears
from torchferry.zoo.catalogue import build


def test_a_weight_that_matters_is_found_and_roles_stay_whole_without_time(deployed):
    model = build("llama").model
    linears = list(find_linears(io.load(deployed[0] / "onnx/model.onnx").graph))[:-1]
    named = parameters_by_name(model)
    ids = [torch.arange(3, 40)[None]]
    one_by_one = measure_sensitivity(model, linears, RECIPES["int4"], ids, named)
    assert {unit.name for unit in one_by_one} == {linear.name for linear in linears}
    assert all(unit.cost >= -1e-6 for unit in one_by_one)
    assert len({round(unit.cost, 9) for unit in one_by_one}) > 3
    assert all(unit.extra > unit.elements // 2 for unit in one_by_one)
    whole = measure_sensitivity(model, linears, RECIPES["int4"], ids, named, seconds=-1)
    assert {unit.name for unit in whole} == {role_of(linear.name) for linear in linears}
    names = [name for unit in whole for name in unit.weights]
    assert sorted(names) == sorted(linear.name for linear in linears)
    assert len(whole[0].weights) == 2
