"""Taps while something traces, compiles or exports the module."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from functorch.compile import aot_module, make_boxed_func
from torch.fx.experimental.proxy_tensor import make_fx

from torchferry.observer.tap import tapped


class Doubler(torch.nn.Module):
    def forward(self, x: torch.Tensor, *, times: int = 2) -> torch.Tensor:
        return x * times


class Listener:
    """A tap that writes down what it hears."""

    def __init__(self, module: torch.nn.Module, method: str = "forward", name: str = "") -> None:
        self.module, self.method, self.name = module, method, name
        self.heard: list[Any] = []

    def enter(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> int:
        self.heard.append((f"{self.name}+", args, kwargs))
        return len(self.heard)

    def leave(self, entered: Any, outputs: Any) -> None:
        self.heard.append((f"{self.name}-", entered, outputs))

    def export(self) -> None:
        self.heard.append("export")


class Scale(torch.nn.Module):
    """Has state, so that it matters which module runs."""

    def __init__(self, factor: float) -> None:
        super().__init__()
        self.factor = torch.nn.Parameter(torch.tensor(factor))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.factor


@pytest.fixture
def model() -> Doubler:
    return Doubler()


@pytest.mark.parametrize("strict", [False, True])
def test_torch_export_is_told_of_apart(model: Doubler, strict: bool) -> None:
    tap = Listener(model)
    with tapped([tap]):
        program = torch.export.export(model, (torch.ones(2),), strict=strict)
    assert tap.heard == ["export"]
    expected = torch.export.export(model, (torch.ones(2),), strict=strict)
    assert str(program.graph) == str(expected.graph)


def test_strict_export_names_modules_as_without() -> None:
    model, x = torch.nn.Sequential(Scale(2.0), torch.nn.Linear(2, 2)), torch.ones(3, 2)

    def stacks() -> list[Any]:
        program = torch.export.export(model, (x,), strict=True)
        return [
            list((node.meta.get("nn_module_stack") or {}).values()) for node in program.graph.nodes
        ]

    expected = stacks()
    taps = [Listener(module) for module in model.modules()]
    with tapped(taps):
        assert stacks() == expected
    assert [tap.heard for tap in taps] == [["export"]] * 3


def _aot(model: torch.nn.Module, x: torch.Tensor) -> torch.fx.GraphModule:
    graphs: list[torch.fx.GraphModule] = []

    def keep(graph: torch.fx.GraphModule, _: Any) -> Any:
        graphs.append(graph)
        return make_boxed_func(graph.forward)

    aot_module(model, keep)(x)
    return graphs[0]


TRACERS = {
    "make_fx": lambda model, x: make_fx(model)(x),
    "make_fx with symbols": lambda model, x: make_fx(
        model, tracing_mode="symbolic", _allow_non_fake_inputs=True
    )(x),
    "symbolic_trace": lambda model, x: torch.fx.symbolic_trace(model),
    "jit.trace": lambda model, x: torch.jit.trace(model, x, check_trace=False),
    "aot": _aot,
}


def _operations(traced: Any) -> list[str]:
    if isinstance(traced, torch.jit.ScriptModule):
        return [node.kind() for node in traced.inlined_graph.nodes()]
    return [f"{node.op} {node.target}" for node in traced.graph.nodes]


class Nosy(Listener):
    """Looks at the values, which a tracer would write into its graph."""

    def enter(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> int:
        args[0].clone()
        return super().enter(args, kwargs)

    def leave(self, entered: Any, outputs: Any) -> None:
        outputs.clone()
        super().leave(entered, outputs)


@pytest.mark.filterwarnings("ignore:.*torch.jit")
@pytest.mark.parametrize("tracer", TRACERS)
def test_other_tracers_hear_nothing_and_trace_the_same(tracer: str) -> None:
    model, x = torch.nn.Sequential(Scale(2.0), torch.nn.ReLU()), torch.ones(3)
    expected = TRACERS[tracer](model, x)
    taps = [Nosy(module) for module in model.modules()]
    with tapped(taps):
        got = TRACERS[tracer](model, x)
    assert _operations(got) == _operations(expected)
    assert [tap.heard for tap in taps] == [[]] * 3


@pytest.mark.filterwarnings("ignore:.*torch.jit")
def test_torch_jit_compiles_in_the_block() -> None:
    closed = torch.nn.functional.relu

    class Closed(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return closed(x)

    model = torch.nn.Sequential(torch.nn.Linear(2, 2), Closed())
    x = torch.ones(1, 2)
    with tapped([Listener(module) for module in model.modules()]):
        scripted = torch.jit.script(model)
    assert torch.equal(scripted(x), model(x))


@pytest.mark.filterwarnings("ignore:.*torch.jit")
def test_modules_of_torch_jit_are_heard_as_a_whole() -> None:
    scripted = torch.jit.script(torch.nn.Sequential(torch.nn.Linear(2, 2)))
    x = torch.ones(1, 2)
    expected, own = scripted(x), vars(scripted).get("forward")
    taps = [Listener(module) for module in scripted.modules()]
    with tapped(taps):
        assert torch.equal(scripted(x), expected)
    assert [len(tap.heard) for tap in taps] == [2, 0]
    assert vars(scripted).get("forward") is own
    assert torch.equal(scripted(x), expected)


def test_a_function_of_a_closure_compiles_in_one_graph() -> None:
    factor = 3.0

    class Closed(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x * factor

    model = Closed()
    with tapped([Listener(model)]):
        compiled = torch.compile(model, backend="eager", fullgraph=True)
        assert torch.equal(compiled(torch.ones(2)), torch.full((2,), 3.0))


def test_compilers_hear_nothing_and_compile_the_same(model: Doubler) -> None:
    tap = Listener(model)
    with tapped([tap]):
        compiled = torch.compile(model, backend="eager", fullgraph=True)
        assert torch.equal(compiled(torch.ones(2)), torch.full((2,), 2.0))
    assert tap.heard == []
    assert torch.equal(compiled(torch.ones(2)), torch.full((2,), 2.0))


def test_a_method_compiled_before_is_heard_as_a_whole() -> None:
    compiled = torch.compile(Doubler(), backend="eager")
    tap = Listener(compiled)
    with tapped([tap]):
        assert torch.equal(compiled(torch.ones(2)), torch.full((2,), 2.0))
    assert len(tap.heard) == 2
