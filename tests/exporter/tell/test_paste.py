from __future__ import annotations

import dataclasses
import re
from typing import Any

import pytest
import torch
from torch import nn

from torchferry.exporter.tell.paste import Pasted, export_source
from torchferry.observer.model_inputs import ModelInputs
from torchferry.values import (
    make_dynamic_cache,
    make_encoder_decoder_cache,
    make_sliding_window_cache,
    make_static_cache,
    register_pytrees,
    string_type,
)

# torch.onnx warns of every name that it finds twice, and of its own deprecations.
pytestmark = pytest.mark.filterwarnings("ignore")


class Anything(nn.Module):
    def forward(self, x: Any = None, y: Any = None, **more: Any) -> Any:
        return x


@dataclasses.dataclass
class Box:
    inner: torch.Tensor
    note: str | None = None


def pair(batch: int, length: int) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.rand(batch, 2, length, 4), torch.rand(batch, 2, length, 4)


def pasted(model: nn.Module, *sets: Any) -> Pasted:
    return export_source(ModelInputs(model, sets))


def run(model: nn.Module, *parts: str) -> dict[str, Any]:
    scope: dict[str, Any] = {"model": model}
    for part in parts:
        exec(compile(part, "pasted", "exec"), scope)  # noqa: S102  (what it is for)
    return scope


def values(*sets: Any) -> Any:
    """The first argument, as the pasted code makes it."""
    return run(nn.ReLU(), pasted(Anything(), *sets).inputs)["kwargs"]["x"]


@pytest.mark.parametrize(
    "dtype",
    [torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.float8_e4m3fn,
     torch.int64, torch.int32, torch.uint8, torch.int8, torch.uint16, torch.bool,
     torch.complex64],
    ids=str,
)  # fmt: skip
def test_a_tensor_has_the_dtype_shape_and_range_seen(dtype: torch.dtype) -> None:
    tensor = torch.arange(6).reshape(2, 3).to(dtype)
    made = values({"x": tensor}, {"x": tensor[:, :2]})
    assert made.dtype == dtype
    assert made.shape == (2, 3)
    if not dtype.is_floating_point and not dtype.is_complex:
        assert 0 <= made.to(torch.int64).min() <= made.to(torch.int64).max() <= 5


@pytest.mark.parametrize(
    ("tensor", "text"),
    [
        (torch.zeros(2, 0), "torch.zeros((2, 0), dtype=torch.float32)"),
        (torch.tensor(7), "torch.full((), 7, dtype=torch.int64)"),
        (torch.ones(2, dtype=torch.bool), "torch.full((2,), True, dtype=torch.bool)"),
        (torch.full((2,), -torch.inf), "torch.full((2,), float('-inf'), dtype=torch.float32)"),
        (torch.full((2,), torch.nan), "torch.full((2,), float('nan'), dtype=torch.float32)"),
        (torch.tensor([-1.0, 1.0]), "torch.randn((2,))"),
        (torch.tensor([0.0, 1.0]), "torch.rand((2,))"),
    ],
    ids=str,
)
def test_special_tensors(tensor: torch.Tensor, text: str) -> None:
    assert f"'x': {text}," in pasted(Anything(), {"x": tensor}).inputs
    assert values({"x": tensor}).shape == tensor.shape


@pytest.mark.parametrize(
    "make",
    [
        lambda n: [torch.rand(n), (torch.rand(2, n),), {"k": [None, 3, "t", 2.5, float("inf")]}],
        lambda n: (),
        lambda n: make_dynamic_cache([pair(2, n)] * 2),
        lambda n: make_dynamic_cache([]),
        lambda n: make_static_cache([pair(n, 6)]),
        lambda n: make_sliding_window_cache([pair(2, n)], 8),
        lambda n: make_encoder_decoder_cache([pair(2, n)], [pair(2, 7)]),
        lambda n: Box(torch.rand(n), "note"),
    ],
    ids=["nested", "nothing", "dynamic", "empty", "static", "sliding", "encoder-decoder",
         "dataclass"],
)  # fmt: skip
def test_nested_values(make: Any) -> None:
    register_pytrees(Box)
    shown = string_type(make(5), with_shape=True)
    sets = [{"x": make(n)} for n in (3, 5)]
    assert string_type(values(*sets[::-1]), with_shape=True) == shown


def test_a_value_without_literal_form_is_left_to_the_user() -> None:
    class Odd:
        pass

    odd = Odd()
    made = pasted(Anything(), *({"x": torch.rand(n), "y": [odd]} for n in (2, 3)))
    assert made.missing == ("y_0",)
    assert "'y': [y_0]," in made.inputs
    scope: dict[str, Any] = {"model": nn.ReLU(), "y_0": odd}
    exec(made.inputs, scope)  # noqa: S102  (what it is for)
    assert scope["kwargs"]["y"] == [odd]


class Model(nn.Module):
    """A bit of everything that torch can export."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(
        self, x: torch.Tensor, state: Any = None, scale: float = 1.0, **more: Any
    ) -> torch.Tensor:
        result = self.linear(x) * scale
        result = result if state is None else result + state["bias"]
        return result + more["shift"] if "shift" in more else result


@pytest.mark.sample(3)
@pytest.mark.parametrize(
    "make",
    [
        lambda n: (torch.rand(n, 4),),
        lambda n: {"x": torch.rand(n, 4)},
        lambda n: ((torch.rand(n, 4), {"bias": torch.rand(n, 1)}), {"scale": 2.0}),
        lambda n: {"x": torch.rand(n, 4), "shift": torch.rand(n, 4)},
        lambda n: {"x": torch.rand(n, 4), "scale": 2.0, "unused": True, "state": None},
        lambda n: (torch.rand(n, 4), None, 2.0),
    ],
    ids=["positional", "named", "mixed", "kwargs", "constants", "positional constant"],
)
def test_what_is_pasted_runs(make: Any) -> None:
    model = Model().eval()
    made = pasted(model, make(3), make(5))
    scope = run(model, made.inputs, made.export, made.onnx)
    inputs = [n.meta["val"] for n in scope["program"].graph.nodes if n.op == "placeholder"]
    shapes = [getattr(value, "shape", ()) for value in inputs]
    assert any(isinstance(size, torch.SymInt) for shape in shapes for size in shape)
    result = scope["program"].module()(*scope["args"], **scope["kwargs"])
    torch.testing.assert_close(result, model(*scope["args"], **scope["kwargs"]))
    first = scope["onnx_program"].model.graph.inputs[0]
    assert [str(size) for size in first.shape] == ["batch_size", "4"]


def test_what_can_only_be_positional_stays_so() -> None:
    class Sum(nn.Module):
        def forward(self, first: torch.Tensor, *others: torch.Tensor) -> torch.Tensor:
            return first + sum(others)

    made = pasted(Sum(), *((torch.rand(n, 4),) * 3 for n in (2, 3)))
    assert "kwargs = {\n}" in made.inputs
    scope = run(Sum(), made.inputs, made.export, made.onnx)
    shapes = [v.shape for v in scope["onnx_program"].model.graph.inputs]
    assert [str(shape[0]) for shape in shapes] == ["batch_size"] * 3


def test_constants_are_bound_and_none_is_left_out() -> None:
    sets = [{"x": torch.rand(n, 4), "scale": 2.0, "state": None} for n in (2, 3)]
    made = pasted(Model(), *sets)
    assert "model.forward = functools.partial(model.forward, scale=2.0)" in made.inputs
    for text in (made.export, made.onnx):
        assert re.findall(r"'(\w+)':", text) == ["x"]


def test_one_set_leaves_it_to_torch() -> None:
    made = pasted(Model().eval(), (torch.rand(3, 4),))
    assert "{0: Dim.AUTO, 1: Dim.AUTO}" in made.export
    assert run(Model().eval(), made.inputs, made.export)["program"] is not None
