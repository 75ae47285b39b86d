import pytest
import torch
from torch import nn

from torchferry.exporter import memory


def test_weights_that_are_tied_count_once() -> None:
    model = nn.Sequential(nn.Linear(4, 4, bias=False), nn.Linear(4, 4, bias=False))
    assert memory.weight_bytes(model) == 128
    model[1].weight = model[0].weight
    assert memory.weight_bytes(model.to(torch.bfloat16)) == 32


@pytest.mark.parametrize(("size", "way"), [(100, "whole"), (400, "layers")])
def test_layers_are_taken_where_a_session_may_not_fit(size, way, monkeypatch) -> None:
    monkeypatch.setattr(memory, "available_memory", lambda: 1000)
    assert memory.way_to_verify("auto", size) == way
    assert memory.way_to_verify("whole", size) == "whole"
    assert memory.way_to_verify("layers", size) == "layers"
    assert memory.can_run(500)
    assert not memory.can_run(501)


def test_a_system_that_does_not_tell_its_memory_has_enough(monkeypatch) -> None:
    monkeypatch.setattr(memory, "available_memory", lambda: None)
    assert memory.way_to_verify("auto", 10**15) == "whole"
    assert memory.can_run(10**15)
    assert not memory.can_take_layers("to_onnx", "lift")
