"""How people use ``torch.compile``: every case gives what eager gives."""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

pytestmark = [
    pytest.mark.usefixtures("fresh"),
    pytest.mark.filterwarnings("ignore"),  # dynamo and models warn of their own code
]


def compiled(function: Any, **settings: Any) -> Any:
    return torch.compile(function, backend="torchferry", **settings)


def mlp() -> Any:
    return nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 4))


def equal(found: Any, expected: Any, tolerance: float = 1e-5) -> None:
    torch.testing.assert_close(found, expected, atol=tolerance, rtol=tolerance, equal_nan=True)


def gradients(function: Callable[..., Any], *tensors: torch.Tensor) -> list[Any]:
    given = [tensor.detach().clone().requires_grad_() for tensor in tensors]
    return list(torch.autograd.grad(function(*given).sum(), given))


def test_numbers_tensors_of_one_element_and_nan() -> None:
    run, x = compiled(lambda x, n: x * n + n), torch.randn(3)
    for number in (1, 2.5, 3, True, 0, -1, 7.25, float("inf"), 1e-30):
        equal(run(x, number), x * number + number)
    kinds = [torch.float32, torch.int64, torch.bool, torch.float64]
    for tensor in [*(torch.tensor(1, dtype=kind) for kind in kinds), torch.tensor(float("nan"))]:
        equal(run(x, tensor), x * tensor + tensor)


@pytest.mark.parametrize("number", [0.1, 1e300, 1e-300, -3.5])
def test_a_python_float_keeps_its_64_bits(number: float) -> None:
    x = torch.rand(3, dtype=torch.float64)
    run = compiled(lambda x, t: x * t)
    for other in (2.0, 0.7, number):
        equal(run(x, other), x * other, 1e-15)


def test_integers_that_overflow_64_bits_are_counted_by_python() -> None:
    def powers(x: torch.Tensor, n: int) -> torch.Tensor:
        return x + (n * n * n) % 7

    run = compiled(powers)
    for n in (2, 5, 2**33 + 1, 3):
        equal(run(torch.ones(2), n), powers(torch.ones(2), n))


def test_vectors_times_matrices() -> None:
    matrix, vector = torch.randn(5, 10), torch.randn(10)
    expected = gradients(torch.mv, matrix, vector)
    equal(gradients(compiled(torch.mv), matrix, vector), expected, 1e-4)


@pytest.mark.parametrize("share", ["the same", "a view", "a part", "none"])
def test_arguments_that_share_memory_after_others_that_do_not(share: str) -> None:
    """With dynamic sizes torch keeps no guard of it."""

    def function(x: torch.Tensor, rest: torch.Tensor) -> torch.Tensor:
        return x.relu_() + rest

    def arguments() -> tuple[torch.Tensor, torch.Tensor]:
        torch.manual_seed(0)
        x = torch.randn(3, 2)
        pairs = {"the same": (x, x), "a view": (x, x.view(3, 2)), "a part": (x[:2], x[1:])}
        return pairs.get(share, (x, x.clone()))

    compiled = torch.compile(function, backend="torchferry")
    for rows in (4, 5):
        compiled(torch.randn(rows, 2), torch.randn(rows, 2))
    given, same = arguments(), arguments()
    torch.testing.assert_close(compiled(*given), function(*same))
    torch.testing.assert_close(given, same)


def test_arguments_that_overlap_and_are_written_to() -> None:
    def write(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        x.add_(y)
        y.mul_(2)
        return x + y

    run = compiled(write)
    for places in (slice(None, None, 2), slice(1, None, 2)), (slice(None), slice(None)):
        mine = torch.randn(6)
        other = mine.clone()
        equal(run(*(mine[place] for place in places)), write(*(other[p] for p in places)))
        equal(mine, other)


@pytest.mark.parametrize(
    "function",
    [lambda x: (x + 1)[:, ::2], lambda x: (x + 1).expand(2, -1, 4), lambda x: (x + 1).mT],
)
def test_the_strides_of_a_result_are_those_of_eager(function: Callable[..., Any]) -> None:
    run, x = compiled(function), torch.randn(3, 4)
    equal(run(x), function(x))
    assert run(x).stride() == function(x).stride()


def test_an_empty_result_has_the_strides_of_eager() -> None:
    run = compiled(lambda x: x + 1, dynamic=True)
    for rows in (3, 0):
        assert run(torch.ones(rows, 4)).stride() == (4, 1)


def test_channels_last_stays() -> None:
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU()).to(memory_format=torch.channels_last)
    x = torch.randn(2, 3, 9, 9).to(memory_format=torch.channels_last)
    for grad in (False, True):
        with torch.set_grad_enabled(grad):
            found = compiled(model)(x)
        equal(found, model(x))
        assert found.stride() == model(x).stride()


def test_dropout_and_batch_norm_in_training_mode() -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Dropout(0.5)).train()
    other = copy.deepcopy(model)
    run, x = compiled(model), torch.randn(8, 4)
    for grad in (True, False):
        with torch.set_grad_enabled(grad):
            torch.manual_seed(1)
            found = run(x)
            torch.manual_seed(1)
            equal(found, other(x))
            assert not torch.equal(found, run(x))
            other(x)
    equal(model.state_dict(), other.state_dict())


def test_training_under_autocast() -> None:
    model = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.LayerNorm(8))
    other = copy.deepcopy(model)
    x = torch.randn(3, 8)
    for run, module in ((compiled(model), model), (other, other)):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = (run(x).float() - 1).pow(4).mean()
        loss.backward()
        assert module[0].weight.grad is not None
    equal(model[0].weight.grad, other[0].weight.grad, 5e-2)


def test_hooks() -> None:
    model, x = mlp(), torch.randn(3, 8)
    model[0].register_forward_hook(lambda module, given, found: found * 2)
    model[2].register_full_backward_hook(lambda module, into, out: tuple(g * 3 for g in into))
    equal(compiled(model)(x), model(x))
    equal(gradients(compiled(model), x), gradients(model, x))


def test_threads() -> None:
    model, wrong = mlp(), []
    run = compiled(model)

    def call(rows: int) -> None:
        with torch.no_grad():
            for _ in range(20):
                x = torch.randn(rows, 8)
                if not torch.allclose(run(x), model(x), atol=1e-5):
                    wrong.append(rows)

    threads = [threading.Thread(target=call, args=(rows,)) for rows in (2, 3, 4, 3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_copies_of_a_compiled_model_have_weights_of_their_own() -> None:
    model, x = mlp(), torch.randn(3, 8)
    run = compiled(model)
    with torch.no_grad():
        equal(run(x), model(x))
        other = copy.deepcopy(run)
        other._orig_mod[0].weight.mul_(2)
        equal(other(x), other._orig_mod(x))
        equal(run(x), model(x))
        assert not torch.allclose(other(x), run(x))


def test_weights_in_the_hands_of_an_optimizer() -> None:
    model, x = mlp(), torch.randn(3, 8)
    run = compiled(model)
    optimizer = torch.optim.AdamW(model.parameters(), 1e-2)
    for _ in range(3):
        with torch.no_grad():
            equal(run(x), model(x))
        run(x).sum().backward()
        optimizer.step()
    with torch.no_grad():
        model.to(torch.float64)
        equal(run(x.double()), model(x.double()))
        model.float().load_state_dict(mlp().state_dict(), assign=True)
        equal(run(x), model(x))


def test_a_compiled_optimizer() -> None:
    model, x = mlp(), torch.randn(3, 8)
    other = copy.deepcopy(model)
    mine = torch.optim.Adam(model.parameters(), torch.tensor(1e-2))
    theirs = torch.optim.Adam(other.parameters(), 1e-2)

    def step() -> None:
        mine.step()

    run = compiled(step)
    for _ in range(3):
        model(x).sum().backward()
        other(x).sum().backward()
        run()
        theirs.step()
    equal(list(model.parameters()), list(other.parameters()), 1e-4)


def test_checkpoints() -> None:
    block = nn.Sequential(nn.Linear(8, 8), nn.Dropout(0.3), nn.Tanh())

    def run(x: torch.Tensor) -> Any:
        return checkpoint(block, x, use_reentrant=False) * x

    x, found = torch.randn(3, 8), []
    for function in (run, compiled(run)):
        torch.manual_seed(1)
        found += [gradients(function, x)]
    equal(*found)


def test_a_second_derivative_is_refused_and_functional_ones_are_right() -> None:
    x = torch.randn(3, requires_grad=True)
    (gradient,) = torch.autograd.grad(compiled(lambda x: x**3)(x).sum(), x, create_graph=True)
    with pytest.raises(RuntimeError, match="does not currently support double backward"):
        gradient.sum().backward()
    x = x.detach()
    for made in (torch.func.hessian(lambda z: z.sin().sum()), torch.func.vmap(torch.sin)):
        torch._dynamo.reset()
        equal(compiled(made)(x), made(x))


def test_operators_of_a_user() -> None:
    class Doubled(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
            ctx.save_for_backward(x)
            return x.exp()

        @staticmethod
        def backward(ctx: Any, *gradients: torch.Tensor) -> torch.Tensor:
            (x,) = ctx.saved_tensors
            return gradients[0] * x

    def run(x: torch.Tensor) -> Any:
        return Doubled.apply(x * 2)

    x = torch.randn(3)
    equal(gradients(compiled(run), x), gradients(run, x))


@pytest.mark.slow
@pytest.mark.parametrize("cache", [None, "static"])
def test_generation(cache: str | None) -> None:
    transformers = pytest.importorskip("transformers")
    config = transformers.LlamaConfig(
        hidden_size=32, num_hidden_layers=2, vocab_size=64, intermediate_size=64,
        num_attention_heads=4, num_key_value_heads=2,
    )  # fmt: skip
    model = transformers.LlamaForCausalLM(config).eval()
    model.generation_config.pad_token_id, model.generation_config.eos_token_id = 0, None
    ids = torch.randint(1, 64, (2, 5))
    expected = model.generate(ids, max_new_tokens=8, do_sample=False)
    model.forward = compiled(model.forward)
    settings = {} if cache is None else {"cache_implementation": cache}
    found = model.generate(
        ids, max_new_tokens=8, do_sample=False, disable_compile=True, **settings
    )
    assert torch.equal(found, expected)
