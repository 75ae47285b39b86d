from __future__ import annotations

import dataclasses
import operator
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import fx, nn

from torchferry.compiler.key import content_key, graph_key, static_positions
from torchferry.compiler.record import Settings
from torchferry.optimizer import OptimizationOptions, Rule

X, Y = torch.randn(2, 3), torch.randn(2, 3)
SETTINGS = Settings(23, OptimizationOptions("default"))


def graph(
    *targets: Any, name: str = "x", more: tuple[Any, ...] = (), root: Any = None
) -> fx.GraphModule:
    made = fx.Graph()
    x = made.placeholder(name)
    for target in targets:
        x = made.call_function(target, (x, *more))
    made.output((x,))
    return fx.GraphModule(root or nn.Module(), made)


def key(module: fx.GraphModule, *args: Any, settings: Settings = SETTINGS) -> str | None:
    return graph_key(module, args or (X,), settings)


def test_equal_graphs_have_one_key() -> None:
    assert key(graph(torch.relu)) == key(graph(torch.relu)) is not None
    assert key(graph(torch.relu), X) == key(graph(torch.relu), Y)


@pytest.mark.parametrize(
    "other",
    [
        lambda: key(graph(torch.sigmoid)),
        lambda: key(graph(torch.relu, torch.relu)),
        lambda: key(graph(torch.relu, name="y")),
        lambda: key(graph(torch.ops.aten.relu.default)),
        lambda: key(graph(torch.relu), torch.randn(3, 3)),
        lambda: key(graph(torch.relu), torch.randn(3, 2).t()),
        lambda: key(graph(torch.relu), X.double()),
        lambda: key(graph(torch.relu), nn.Parameter(X)),
        lambda: key(graph(torch.relu), settings=Settings(22, SETTINGS.options)),
        lambda: key(graph(torch.relu), settings=Settings(23, None)),
        lambda: key(graph(torch.relu), settings=Settings(23, OptimizationOptions("Cast"))),
        lambda: key(
            graph(torch.relu),
            settings=Settings(23, OptimizationOptions("default", constant_folding={"Neg"})),
        ),
    ],
)
def test_whatever_differs_makes_another_key(other: Callable[[], str | None]) -> None:
    assert other() not in (None, key(graph(torch.relu)))


def test_constants_count() -> None:
    texts = [1, 1.0, True, (1, 2), [1, 2], slice(None, 1), torch.float16, "mean", 0.1 + 0.2, 0.3]
    keys = [key(graph(operator.getitem, more=(text,))) for text in texts]
    assert None not in keys
    assert len({*keys}) == len(texts)


def test_states_of_pytorch_count() -> None:
    keys = {key(graph(torch.relu))}
    with torch.no_grad():
        keys.add(key(graph(torch.relu)))
    with torch.inference_mode():
        keys.add(key(graph(torch.relu)))
    assert len(keys) == 3
    with torch.autocast("cpu"):
        assert key(graph(torch.relu)) is None


def mine(x: Any) -> Any:
    return x


@pytest.mark.parametrize(
    "other",
    [
        lambda: key(graph(mine)),
        lambda: key(graph(torch.relu, more=(np.float64(1),))),
        lambda: key(graph(torch.relu), X.to("meta")),
        lambda: key(graph(torch.relu), X.to_sparse()),
        lambda: key(graph(torch.relu), 3),
        lambda: key(graph(torch.relu), torch.conj(X * 1j)),
        lambda: key(
            graph(torch.relu), settings=dataclasses.replace(
                SETTINGS, options=OptimizationOptions(["Cast", Own()]))
        ),
    ],
)  # fmt: skip
def test_what_may_mean_something_else_next_time_has_no_key(
    other: Callable[[], str | None],
) -> None:
    assert other() is None


class Own(Rule):
    """Exp(x)  →  Log(x)"""

    def pattern(self, p: Any, x: Any) -> Any:
        return p.Exp(x)

    def rewrite(self, b: Any, x: Any) -> Any:
        return b.Log(x)


def test_the_graph_s_own_tensors_and_graphs_count() -> None:
    def with_attribute(value: Any) -> fx.GraphModule:
        root, made = nn.Module(), fx.Graph()
        root.c = value
        made.placeholder("x")
        made.output((made.get_attr("c"),))
        return fx.GraphModule(root, made)

    ones = key(with_attribute(torch.ones(2)))
    assert ones == key(with_attribute(torch.ones(2)))
    assert ones != key(with_attribute(torch.zeros(2)))
    inner = key(with_attribute(graph(torch.relu)))
    assert inner not in (None, key(with_attribute(graph(torch.sigmoid))))
    assert key(with_attribute(graph(mine))) is None


def test_weights_are_known_by_their_content() -> None:
    weight = torch.randn(4, 6)
    assert content_key([weight]) == content_key([weight.clone()])
    different = [weight + 1, weight.t(), weight.double(), weight.reshape(6, 4)]
    keys = {content_key([other]) for other in [weight, *different]}
    keys |= {content_key([]), content_key([weight, weight])}
    keys |= {content_key([torch.ones(())]), content_key([torch.ones(0)])}
    keys.add(content_key([torch.ones(2, dtype=torch.bfloat16)]))
    assert len(keys) == 10
    assert content_key([torch.ones(1).expand(2**31)]) is None


def test_dynamo_marks_the_weights() -> None:
    seen = []

    def backend(module: fx.GraphModule, args: Any) -> Any:
        seen.append([args[i].shape for i in static_positions(args)])
        return module.forward

    torch._dynamo.reset()
    torch.compile(nn.Linear(3, 4), backend=backend)(X)
    assert seen == [[(4, 3), (4,)]]


def test_a_number_that_may_become_a_constant_has_no_key() -> None:
    seen = []

    def backend(module: fx.GraphModule, args: Any) -> Any:
        seen.append(key(module, *args))
        return module.forward

    torch._dynamo.reset()
    run = torch.compile(lambda x, n: x * n, backend=backend)
    for number in (2, 2.5, 3.5):
        run(X, number)
    assert seen[0] is not None
    assert seen[-1] is None
