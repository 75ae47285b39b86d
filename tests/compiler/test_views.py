from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import fx
from torch.fx.experimental.proxy_tensor import make_fx

from torchferry.compiler.views import is_separate, separate_views

X = torch.arange(6.0).reshape(2, 3)


def separated(function: Callable[..., Any], *args: Any) -> tuple[fx.GraphModule, list[str]]:
    module: fx.GraphModule = make_fx(function, tracing_mode="fake")(*args)
    separate_views(module)
    return module, [str(node.target) for node in module.graph.nodes if is_separate(node)]


@pytest.mark.parametrize(
    ("function", "made"),
    [
        (lambda x: (x + 1, (x + 1).t()), []),
        (lambda x: [(y := x + 1), y.t()], ["aten.t.default"]),
        (lambda x: (y := x + 1)[0] + y.t()[1, 1], []),
        (lambda x: (x + 1).split([1, 2], 1), ["aten.split_with_sizes.default", *["getitem"] * 2]),
        (lambda x: (x + 1)[:, ::2], ["aten.slice.Tensor"]),
        (lambda x: x.t(), ["aten.t.default"]),  # of an argument
        (lambda x: (x + 1, x), []),
        (lambda x: [(y := x + 1), y.detach()], []),
    ],
)
def test_results_that_must_be_views(function: Callable[..., Any], made: list[str]) -> None:
    module, found = separated(function, X)
    assert [name.split(" ")[-1].rstrip(">") for name in found] == made or len(found) == len(made)
    for a, b in zip(
        torch.utils._pytree.tree_leaves(module(X)),
        torch.utils._pytree.tree_leaves(function(X)),
        strict=True,
    ):
        torch.testing.assert_close(a, b, check_stride=True)


def test_what_the_graph_goes_on_with_is_not_separated() -> None:
    def function(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        y = x + 1
        z = y.t()
        return y, z, z.exp()

    module, made = separated(function, X)
    assert made == ["aten.t.default"]
    (exp,) = module.graph.find_nodes(op="call_function", target=torch.ops.aten.exp.default)
    (turned,) = exp.all_input_nodes
    assert not is_separate(turned)
    y, z, _ = module(X)
    y.zero_()
    assert not z.any()


def test_a_view_of_a_tensor_that_no_session_lays_out_so_stays() -> None:
    def function(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        y = torch.empty_strided((2, 3), (6, 2))
        y = torch.ops.aten.copy(y, x)
        return y, y.t()

    assert separated(function, X)[1] == []
