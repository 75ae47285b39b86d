"""Deeper models of the zoo: the same graph whether identical layers are traced or copied."""

import dataclasses

import pytest
import torch
from tests.support.families import slow_among
from tests.support.same_graph import find_difference

from torchferry.capturer import capture
from torchferry.converter import convert
from torchferry.observer import Observation
from torchferry.optimizer import optimize
from torchferry.zoo import architecture, build, catalogue, families
from torchferry.zoo.family import Family

DEPTHS = (
    "num_hidden_layers", "num_layers", "encoder_layers", "decoder_layers", "n_layer",
    "num_decoder_layers", "num_encoder_layers", "n_layers",
)  # fmt: skip
KINDS = ("layer_types", "layers_block_type", "mlp_layer_types", "no_rope_layers")
FAST = {"llama": 2, "vit": 2}
# How many layers repeat another at three layers a stack, at least.
REPEATED = FAST | {
    "bert": 2,
    "gemma2": 1,
    "t5": 1,
    "mixtral": 2,
    "gpt2": 2,
    "mamba": 2,
    "clip": 3,
    "bart": 2,
}
LAYERS = 3


def deeper(sizes):
    """Sizes of a configuration with three layers in each stack."""
    made = {}
    for name, value in sizes.items():
        if name in DEPTHS and isinstance(value, int):
            made[name] = LAYERS
        elif name in KINDS:
            made[name] = [value[index % len(value)] for index in range(LAYERS)]
        else:
            made[name] = deeper(value) if isinstance(value, dict) else value
    return made


@pytest.mark.sample(1)
@pytest.mark.parametrize("family", slow_among(families(), sorted({*families()} - {*FAST})))
def test_the_optimized_graph_is_the_same(family, monkeypatch):
    row = catalogue.FAMILIES[family]
    if isinstance(row, Family):
        monkeypatch.setattr(architecture, "SIZES", architecture.SIZES | deeper(architecture.SIZES))
        row = dataclasses.replace(row, sizes=deeper(row.sizes))
        monkeypatch.setitem(catalogue.FAMILIES, family, row)
    model, sets = (zoo := build(family)).model, zoo.input_sets
    with torch.no_grad():
        seen = Observation.from_inputs(model, [((), one) for one in sets])
        found = [capture(model, seen, settle=False, repeat=repeat) for repeat in (True, False)]
    assert find_difference(*(optimize(convert(one)) for one in found)) == ""
    assert len(found[0].repeated.like) >= REPEATED.get(family, 0)
    assert not found[1].repeated.layers
