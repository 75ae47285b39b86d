from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import torch
from torch import fx, nn

from torchferry.compiler import aot

aten = torch.ops.aten


def graphs(model: nn.Module, x: torch.Tensor) -> tuple[dict[str, list[Any]], list[Any]]:
    """The operators of the graphs that are made for a call, and the static inputs of each."""
    torch._dynamo.reset()
    made: dict[str, list[Any]] = {}
    static: list[Any] = []

    def keep(kind: str) -> Any:
        def compile_graph(module: fx.GraphModule, args: Sequence[Any]) -> Any:
            assert aot.inside_aot()
            made[kind] = [n.target for n in module.graph.nodes if n.op == "call_function"]
            static.append(aot.static_inputs())

            def call(args: list[Any]) -> Any:
                return module(*args)

            call._boxed_call = True  # type: ignore[attr-defined]  # AOTAutograd's mark
            return call

        return compile_graph

    def backend(module: fx.GraphModule, args: Sequence[Any]) -> Any:
        assert not aot.inside_aot()
        return aot.trace(module, args, inference=keep("inference"), training=keep("training"))

    torch.compile(model, backend=backend)(x)
    return made, static


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear, self.norm = nn.Linear(4, 8), nn.LayerNorm(8)
        self.register_buffer("calls", torch.zeros(1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls.add_(1)
        y = self.norm(self.linear(x))[None]
        return nn.functional.scaled_dot_product_attention(y, y, y)


def test_operators_stay_whole_without_gradients() -> None:
    with torch.no_grad():
        made, static = graphs(Model(), torch.randn(3, 4))
    assert {
        aten.linear.default, aten.layer_norm.default, aten.scaled_dot_product_attention.default
    } <= set(made["inference"])  # fmt: skip
    assert len(static[0]) == 4  # the buffer is written to


def test_attention_comes_in_parts_with_gradients() -> None:
    made, _ = graphs(Model(), torch.randn(3, 4))
    names = {str(target) for target in made["training"]}
    assert not [name for name in names if "attention" in name]
    assert all(aot.is_known(target) for target in made["training"])


def test_the_operators_are_as_before_afterwards() -> None:
    with torch.no_grad():
        graphs(Model(), torch.randn(3, 4))
    x = torch.randn(2, 3, requires_grad=True)
    aten.linear.default(x, torch.ones(1, 3)).sum().backward()
    torch.testing.assert_close(x.grad, torch.ones(2, 3))


def test_a_plain_graph_is_called_without_aot_autograd() -> None:
    def plain(function: Any) -> bool:
        torch._dynamo.reset()
        found: list[bool] = []

        def backend(module: fx.GraphModule, args: Sequence[Any]) -> Any:
            def keep(graph: fx.GraphModule, _: Sequence[Any]) -> Any:
                found.append(aot.is_plain(graph, args))
                return graph

            return aot.trace(module, args, inference=keep, training=keep)

        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # what is compiled here takes no list
            torch.compile(function, backend=backend)(torch.ones(2, 3))
        return found[0]

    assert plain(lambda x: (x + 1, x.sum()))
    assert not plain(lambda x: (x + 1, x.view(-1)))
    assert not plain(lambda x: ((x + 1), (x + 1).t(), x.mul_(2)))


def test_trains() -> None:
    weight = nn.Parameter(torch.ones(1))
    assert aot.trains([torch.ones(1), weight, 3])
    assert not aot.trains([torch.ones(1)])
    with torch.no_grad():
        assert not aot.trains([weight])


def test_known_operators() -> None:
    assert aot.is_known(aten.add.Tensor)
    assert not aot.is_known(aten.linalg_eig.default)
