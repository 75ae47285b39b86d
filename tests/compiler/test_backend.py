from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch._dynamo.backends.common import aot_autograd

from torchferry.compiler import onnx_custom_backend
from torchferry.errors import UsageError
from torchferry.optimizer.kernels import library
from torchferry.optimizer.options import OptimizationOptions

Compiled = tuple[Callable[..., Any], list[dict[str, Any]]]
PLAIN = OptimizationOptions(None)  # what is rewritten is tested elsewhere

pytestmark = pytest.mark.usefixtures("fresh")


def compiled(model: Any, dynamic: bool | None = None, **settings: Any) -> Compiled:
    storage: dict[str, Any] = {"instance": []}
    settings = {"options": PLAIN, "storage": storage} | settings
    backend = functools.partial(onnx_custom_backend, **settings)
    return torch.compile(model, backend=backend, dynamic=dynamic), storage["instance"]


def mlp() -> nn.Module:
    return nn.Sequential(nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 4))


def convnet() -> nn.Module:
    layers = [nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten()]
    return nn.Sequential(*layers, nn.Dropout(0.2), nn.Linear(8 * 3 * 3, 4))


def equal(found: Any, expected: Any, tolerance: float = 1e-5) -> None:
    torch.testing.assert_close(found, expected, atol=tolerance, rtol=tolerance, equal_nan=True)


# Inference -------------------------------------------------------------------------------------


@pytest.mark.parametrize("patterns", [None, "default", "default+onnxruntime"])
def test_an_mlp_with_each_set(patterns: str | None) -> None:
    model, x = mlp(), torch.randn(3, 16)
    run, sessions = compiled(model, options=OptimizationOptions(patterns))
    with torch.no_grad():
        equal(run(x), model(x))
    (session,) = sessions
    assert len(session["input_names"]) == 1  # the parameters are weights of the session
    assert session["providers"] == ["CPUExecutionProvider"]


@pytest.mark.skipif(library.compiler() is None, reason="no C compiler")
def test_the_experimental_set_makes_kernels() -> None:
    class Gated(nn.Module):
        def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            return torch.nn.functional.silu(x @ y) * y.exp() + 1

    options = OptimizationOptions("default+onnxruntime+experimental")
    run, sessions = compiled(Gated(), options=options)
    for size in (3, 1, 5):
        x, y = torch.randn(2, size, size), torch.randn(size, size)
        equal(run(x, y), Gated()(x, y))
    assert any(n.domain == "torchferry.kernels" for n in sessions[0]["onnx"].graph.node)


def test_a_convnet() -> None:
    model = convnet().eval()
    run, sessions = compiled(model)
    with torch.no_grad():
        for batch in (2, 3, 1):
            x = torch.randn(batch, 3, 8, 8)
            equal(run(x), model(x))
    assert sessions


def test_one_session_serves_many_sizes() -> None:
    model = mlp()
    run, sessions = compiled(model, dynamic=True)
    with torch.no_grad():
        for batch in (3, 5, 7):
            x = torch.randn(batch, 16)
            equal(run(x), model(x))
        assert len(sessions) == 1
        for batch in (1, 0):
            x = torch.randn(batch, 16)
            equal(run(x), model(x))


def test_a_static_graph_for_every_size() -> None:
    model = mlp()
    run, sessions = compiled(model, dynamic=False)
    with torch.no_grad():
        for batch in (3, 5, 3):
            x = torch.randn(batch, 16)
            equal(run(x), model(x))
    assert len(sessions) == 2


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear, self.lstm = nn.Linear(4, 4), nn.LSTM(4, 8, batch_first=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y, (h, _) = self.lstm(self.linear(x).relu())
        return y + h[-1][:, None]


@pytest.mark.parametrize("allowed", [False, True])
def test_an_lstm(allowed: bool) -> None:
    model, x = Recurrent().eval(), torch.randn(2, 5, 4)
    run, sessions = compiled(model)
    # Dynamo leaves a function with recurrent layers alone, unless it is told not to.
    with torch.no_grad(), torch._dynamo.config.patch(allow_rnn=allowed):
        equal(run(x), model(x))
    kinds = [{node.op_type for node in session["onnx"].graph.node} for session in sessions]
    assert [("LSTM" in names) for names in kinds] == ([True] if allowed else [])


def test_a_graph_break_makes_two_sessions() -> None:
    def broken(x: torch.Tensor) -> torch.Tensor:
        y = x.relu() + 1
        torch._dynamo.graph_break()
        return y.sin()

    run, sessions = compiled(broken)
    x = torch.randn(3, 4)
    equal(run(x), broken(x))
    assert len(sessions) == 2


def test_results_of_every_kind() -> None:
    def every(x: torch.Tensor, n: int) -> tuple[Any, ...]:
        y = x * n
        return (
            *(y.t(), x, None, x.shape[0], x.shape[0] * 2, y, y.clone(), x > 0, y.sum(), y[:0]),
            *(y.to(dtype) for dtype in (torch.float16, torch.bfloat16, torch.int8, torch.float64)),
        )

    run, sessions = compiled(every, dynamic=True)
    for rows, n in ((3, 2), (5, 3)):
        x = torch.randn(rows, 4)
        found, expected = run(x, n), every(x, n)
        assert found[1] is x
        assert found[2:5] == (None, rows, rows * 2)
        for a, b in zip(found, expected, strict=True):
            if isinstance(b, torch.Tensor):
                equal(a, b)
                assert a.stride() == b.stride() or not b.numel()
        found[5].add_(1)  # a result and its clone are two tensors
        equal(found[6], expected[6])
    assert len(sessions) == 1


def test_arguments_of_every_layout_and_dtype() -> None:
    def double(x: torch.Tensor) -> torch.Tensor:
        return x + x

    for dtype in (torch.bfloat16, torch.int8, torch.float64):
        torch._dynamo.reset()
        run, sessions = compiled(double)
        x = torch.arange(6).to(dtype).reshape(2, 3)
        for layout in (x.t(), x[:, ::2], x.sum(), x[:, :0]):
            equal(run(layout), double(layout))
        assert sessions
    run, sessions = compiled(torch.logical_not)
    equal(run(torch.tensor([True, False])), torch.tensor([False, True]))
    assert len(sessions) == 1


def test_an_argument_that_is_written_to() -> None:
    def write(x: torch.Tensor) -> torch.Tensor:
        x.add_(1)
        return x * 2

    run, sessions = compiled(write)
    x = torch.zeros(3)
    equal(run(x), torch.full((3,), 2.0))
    equal(run(x), torch.full((3,), 4.0))
    equal(x, torch.full((3,), 2.0))
    assert len(sessions) == 1


def test_results_that_share_memory_still_do() -> None:
    def views(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        y = x + 1
        return y.view(-1), y, y.t(), y[1:, ::2]

    run, sessions = compiled(views, dynamic=True)
    for rows in (3, 5, 1):
        x = torch.randn(rows, 4)
        found, expected = run(x), views(x)
        for kind in (found, expected):
            kind[1].mul_(3)
        for a, b in zip(found, expected, strict=True):
            equal(a, b)
            assert a.stride() == b.stride()
    assert all(len(session["output_names"]) == 1 for session in sessions)


def test_a_tiny_llama_with_its_cache() -> None:
    transformers = pytest.importorskip("transformers")
    config = transformers.LlamaConfig(
        hidden_size=32, num_hidden_layers=1, vocab_size=64, intermediate_size=64,
        num_attention_heads=4, num_key_value_heads=2,
    )  # fmt: skip
    model = transformers.LlamaModel(config).eval()
    run, sessions = compiled(model, dynamic=True)
    with torch.no_grad():
        ids = torch.randint(0, 64, (2, 8))
        found, expected = run(ids), model(ids)
        equal(found.last_hidden_state, expected.last_hidden_state)
        name = "cache" if "cache" in vars(expected) else "past_key_values"  # before transformers 5
        for _ in range(2):
            token = torch.randint(0, 64, (2, 1))
            found = run(token, **{name: getattr(found, name)})
            expected = model(token, **{name: getattr(expected, name)})
            equal(found.last_hidden_state, expected.last_hidden_state)
    assert len(sessions) == 2
    assert all(len(session["onnx"].graph.node) > 20 for session in sessions)


def test_under_inference_mode_and_autocast() -> None:
    model, x = mlp(), torch.randn(3, 16)
    run, sessions = compiled(model)
    with torch.inference_mode():
        equal(run(x), model(x))
    assert len(sessions) == 1
    with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16):
        found, expected = run(x), model(x)
    assert found.dtype == expected.dtype == torch.bfloat16
    equal(found, expected, 1e-2)
    assert len(sessions) == 2


def test_a_gradient_for_an_argument() -> None:
    model, x = mlp().requires_grad_(False), torch.randn(3, 16)
    run, sessions = compiled(model)
    assert not run(x).requires_grad
    assert len(sessions) == 1
    given, other = x.clone().requires_grad_(), x.clone().requires_grad_()
    run(given).sum().backward()
    model(other).sum().backward()
    equal(given.grad, other.grad)
    assert len(sessions) == 3


# Weights that change ---------------------------------------------------------------------------


def test_changed_weights_are_noticed() -> None:
    model, x = mlp(), torch.randn(3, 16)
    run, sessions = compiled(model)
    linear: Any = model[0]  # type: ignore[index]  # nn.Module has no items
    with torch.no_grad():
        equal(run(x), model(x))
        linear.weight.mul_(2)
        equal(run(x), model(x))
        linear.weight = nn.Parameter(torch.randn(16, 16))
        equal(run(x), model(x))
        linear.weight.data.mul_(3)
        equal(run(x), model(x))
        model.load_state_dict(mlp().state_dict())
        equal(run(x), model(x))
        assert len(sessions) == 5
        equal(run(x), model(x))
    assert len(sessions) == 5


def test_weights_that_change_often_become_inputs() -> None:
    model, x = mlp(), torch.randn(3, 16)
    run, sessions = compiled(model)
    linear: Any = model[0]  # type: ignore[index]  # nn.Module has no items
    with torch.no_grad():
        for _ in range(8):
            linear.bias.add_(1)
            equal(run(x), model(x))
    assert len(sessions) == 5
    assert len(sessions[-1]["input_names"]) == 5


def test_a_buffer_that_the_graph_writes_to_is_an_input() -> None:
    class Counting(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("calls", torch.zeros(1))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.calls.add_(1)
            return x * self.calls

    run, sessions = compiled(Counting())
    for call in (1, 2, 3, 4, 5, 6):
        equal(run(torch.ones(2)), torch.full((2,), float(call)))
    assert len(sessions) == 1


# What onnxruntime cannot -----------------------------------------------------------------------


def test_an_operator_without_an_onnx_form_runs_in_eager(caplog: Any) -> None:
    def unknown(x: torch.Tensor) -> torch.Tensor:
        y = (x.relu() @ x.t()).exp()
        return (torch.linalg.eigvals(y).abs().sum() + x * 2).sigmoid()

    run, sessions = compiled(unknown)
    x = torch.randn(3, 3) / 3
    equal(run(x), unknown(x))
    assert len(sessions) >= 1
    assert "aten.linalg_eig.default" in caplog.text


def test_complex_arguments_and_results_run_in_eager(caplog: Any) -> None:
    run, sessions = compiled(lambda z: z * 2)
    z = torch.randn(3, dtype=torch.complex64)
    equal(run(z), z * 2)
    assert "complex" in caplog.text
    assert sessions == []
    run, _ = compiled(lambda x: torch.view_as_complex(x) * 2)
    x = torch.randn(3, 2)
    equal(run(x), torch.view_as_complex(x) * 2)


def test_random_numbers_are_those_of_pytorch() -> None:
    def noisy(x: torch.Tensor) -> torch.Tensor:
        return (x + torch.rand_like(x)).sin() * 2

    run, _ = compiled(noisy)
    x = torch.randn(3, 4)
    torch.manual_seed(3)
    found = run(x)
    torch.manual_seed(3)
    equal(found, noisy(x))


# How it is called ------------------------------------------------------------------------------


def test_options_may_be_a_dictionary() -> None:
    storage: dict[str, Any] = {}
    options = {"target_opset": 18, "patterns": "default", "storage": storage}
    backend: Any = onnx_custom_backend
    run = torch.compile(torch.relu, backend=backend, options=options)
    x = torch.randn(3)
    equal(run(x), x.relu())
    assert storage["instance"][0]["onnx"].opset_import[0].version == 18


@pytest.mark.parametrize(
    "settings",
    [
        {"options": {"pattern": "x"}}, {"options": {"patterns": "x"}}, {"target_opset": 3},
        {"target_opset": "x"}, {"storage": 3}, {"providers": "CPUExecutionProvider"},
        {"options": {"dump_prefix": 3}}, {"options": {"cache": "no"}}, {"mode": "max-autotune"},
    ],
)  # fmt: skip
def test_wrong_settings_are_told(settings: dict[str, Any]) -> None:
    module = torch.fx.symbolic_trace(nn.ReLU())
    with pytest.raises(UsageError, match=r"unknown|cannot write|must be|inductor's"):
        onnx_custom_backend(module, [torch.ones(1)], **settings)


def test_sessions_have_the_options_that_are_asked_for() -> None:
    run, sessions = compiled(torch.relu, session_options={"intra_op_num_threads": 3})
    equal(run(torch.ones(2)), torch.ones(2))
    assert sessions[0]["sess"].get_session_options().intra_op_num_threads == 3


def test_a_provider_that_is_not_there_is_told_and_the_graph_runs(caplog: Any) -> None:
    run, sessions = compiled(torch.relu, providers=["NoSuchProvider"])
    equal(run(torch.ones(2)), torch.ones(2))
    assert sessions == []
    assert "NoSuchProvider" in caplog.text


def test_it_may_be_the_compiler_of_aot_autograd() -> None:
    storage: dict[str, Any] = {}
    compiler = functools.partial(onnx_custom_backend, storage=storage, options=PLAIN)
    run = torch.compile(mlp_ := mlp(), backend=aot_autograd(fw_compiler=compiler))
    x = torch.randn(3, 16)
    with torch.no_grad():
        equal(run(x), mlp_(x))
    assert len(storage["instance"]) == 1


def test_it_is_found_by_name() -> None:
    assert "torchferry" in torch._dynamo.list_backends()
    equal(torch.compile(torch.relu, backend="torchferry")(torch.ones(2)), torch.ones(2))
