from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import fx
from torch.fx.experimental.proxy_tensor import make_fx

from torchferry.compiler.graph import Result, is_dense, memory_axes, translate
from torchferry.errors import ConversionError


def traced(function: Callable[..., Any], *args: Any, symbolic: bool = False) -> fx.GraphModule:
    mode = "symbolic" if symbolic else "fake"
    module: fx.GraphModule = make_fx(function, tracing_mode=mode)(*args)
    return module


def test_arguments_and_results() -> None:
    def function(x: Any, y: Any, unused: Any) -> Any:
        z = x + y
        return z, y, z.t(), None, z.detach()

    made = translate(traced(function, *(torch.ones(2, 3) for _ in range(3))), 20)
    assert [(feed.position, feed.size) for feed in made.feeds] == [(0, False), (1, False)]
    assert made.results[0] == Result(output=0)
    assert made.results[1] == Result(argument=1)
    assert made.results[2] == Result(output=1, axes=(1, 0))
    assert made.results[3] == Result()
    assert made.results[4] == Result(output=0)
    assert [value.name for value in made.model.graph.outputs] == ["output_0", "output_1"]


def test_a_frozen_argument_is_a_weight_that_is_not_copied() -> None:
    weight = torch.randn(4, 3)
    module = traced(lambda x, w: x @ w, torch.ones(2, 4), weight)
    made = translate(module, 20, {1: weight})
    assert [feed.position for feed in made.feeds] == [0]
    (value,) = made.model.graph.initializers.values()
    stored: Any = value.const_value
    assert stored.raw.data_ptr() == weight.data_ptr()


def test_a_size_that_an_argument_has_is_no_input() -> None:
    made = translate(
        traced(lambda x: x.expand(x.shape[0], 3), torch.ones(5, 1), symbolic=True), 20
    )
    assert [feed.size for feed in made.feeds] == [False]


def test_a_size_that_no_argument_has_is_an_input() -> None:
    module = traced(lambda x: x + x.shape[0], torch.ones(5), symbolic=True)
    (x,) = module.graph.find_nodes(op="placeholder")
    size = x.meta["val"].shape[0]
    graph = fx.Graph()
    given = graph.placeholder("n")
    given.meta["val"] = size
    filled = graph.call_function(torch.ops.aten.full.default, ([given], 2.0))
    filled.meta["val"] = x.meta["val"]
    graph.output((filled, given))
    made = translate(fx.GraphModule(torch.nn.Module(), graph), 20)
    assert [(feed.name, feed.size) for feed in made.feeds] == [("n", True)]
    assert made.results[1] == Result(argument=0)


def test_what_onnx_does_not_have_is_refused() -> None:
    module = traced(lambda z: z * 2, torch.ones(2, dtype=torch.complex64))
    with pytest.raises(ConversionError, match="is complex"):
        translate(module, 20)
    module = traced(torch.view_as_complex, torch.ones(3, 2))
    with pytest.raises(ConversionError, match="result view_as_complex is complex") as caught:
        translate(module, 20)
    assert caught.value.node == "view_as_complex"


@pytest.mark.parametrize(
    ("tensor", "axes"),
    [
        (torch.ones(2, 3), None),
        (torch.ones(2, 3).t(), (1, 0)),
        (torch.ones(2, 3, 4).permute(2, 0, 1), (1, 2, 0)),
        (torch.ones(1, 3).t(), None),
        (torch.ones(3, 1).expand(3, 4), None),
        (torch.ones(4, 4)[::2].t(), None),
        (torch.ones(0, 3).t(), (1, 0)),
        (torch.ones(3, 0), None),
        (torch.ones(()), None),
    ],
)
def test_memory_axes(tensor: torch.Tensor, axes: tuple[int, ...] | None) -> None:
    assert memory_axes(tensor) == axes
    if axes is not None:
        turned = tensor.permute(axes)
        assert turned.stride() == torch.empty(turned.shape).stride()


def test_is_dense() -> None:
    dense = [torch.ones(2, 3).t(), torch.ones(2, 1, 3), torch.ones(0, 3).expand(2, 0, 3)]
    assert all(map(is_dense, dense))
    assert not any(map(is_dense, [torch.ones(3).expand(2, 3), torch.ones(4, 4)[:, ::2]]))
