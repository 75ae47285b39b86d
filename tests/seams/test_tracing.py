"""What torch's tracers say of themselves, in this thread and in others."""

from concurrent.futures import ThreadPoolExecutor

import torch

from torchferry import observe
from torchferry.seams import tracing


def test_tracing_is_seen():
    seen = []

    class Looks(torch.nn.Module):
        def forward(self, x):
            seen.append(tracing.is_traced_by_fx())
            return x + 1

    Looks()(torch.ones(2))
    torch.fx.symbolic_trace(Looks())
    torch.fx.experimental.proxy_tensor.make_fx(Looks())(torch.ones(2))
    assert seen == [False, True, True]


def in_another_thread(function):
    with ThreadPoolExecutor(1) as executor:
        return executor.submit(function).result()


def state():
    return torch.compiler.is_compiling(), tracing.compiles_here()


def test_it_is_this_thread_that_exports_and_no_other():
    found = []

    class Looks(torch.nn.Module):
        def forward(self, x):
            found.extend([state(), in_another_thread(state)])
            return x + 1

    torch.export.export(Looks(), (torch.ones(2),), strict=False)
    assert found == [(True, True), (True, False)]
    assert state()[0] is False


def test_a_model_is_observed_while_another_thread_exports():
    calls = []

    def work():
        model = torch.nn.Linear(3, 2)
        with observe(model) as seen:
            model(torch.randn(2, 3))
        return len(seen.calls)

    class Waits(torch.nn.Linear):
        def forward(self, x):
            calls.append(in_another_thread(work))
            return super().forward(x)

    torch.export.export(Waits(3, 2), (torch.ones(2, 3),), strict=False)
    assert calls == [1]


def test_values_of_a_lifted_tensor_are_known():
    kept = torch.tensor(3)

    class Asks(torch.nn.Module):
        def forward(self, x):
            return x * 2 if tracing.lift_constant(kept) > 2 else x

    program = torch.export.export(Asks(), (torch.ones(2),))
    assert program.module()(torch.ones(2)).tolist() == [2, 2]
    assert tracing.lift_constant(kept).item() == 3
