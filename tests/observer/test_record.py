import inspect
import threading

import pytest
import torch
from torch.fx.experimental.proxy_tensor import make_fx
from transformers import LlamaForCausalLM

from torchferry.errors import UsageError
from torchferry.observer import observe
from torchferry.values import make_dynamic_cache
from torchferry.zoo import get_tiny_llm

# Renamed in transformers 5.24.
CACHE = (
    "cache"
    if "cache" in inspect.signature(LlamaForCausalLM.forward).parameters
    else ("past_key_values")
)


class Grow(torch.nn.Module):
    """Appends to a list of tensors, and writes to its input."""

    def forward(self, x, *, seen):
        seen.append(x.clone())
        x.add_(1)
        return x


class Countdown(torch.nn.Module):
    def forward(self, n):
        if n.numel() == 1:
            return n * 10
        return self(n[1:]) + 1


class Picky(torch.nn.Module):
    def forward(self, x):
        if x.shape[0] == 3:
            raise ValueError("not three")
        return x * 2


@pytest.fixture(scope="module")
def llm():
    return get_tiny_llm(
        vocab_size=100, hidden_size=32, intermediate_size=32, head_dim=16, num_hidden_layers=2
    )["model"]


def test_inputs_are_kept_as_they_were_before_the_call():
    seen_list = []
    model = Grow()
    with observe(model) as seen:
        model(torch.zeros(2), seen=seen_list)
        model(torch.zeros(3), seen=seen_list)
    assert [len(call.kwargs["seen"]) for call in seen.calls] == [0, 1]
    assert all((call.args[0] == 0).all() for call in seen.calls)
    assert all((call.outputs == 1).all() for call in seen.calls)


def test_outputs_are_kept_as_they_were_right_after_the_call():
    model = torch.nn.Identity()
    with observe(model) as seen:
        model(torch.zeros(2)).add_(5)
    assert (seen.calls[0].outputs == 0).all()


def test_results_and_signature_stay_as_they_are():
    model = torch.nn.Linear(2, 3)
    x = torch.randn(4, 2)
    expected, signature = model(x), inspect.signature(model.forward)
    with observe(model) as seen:
        got = model(x)
        assert inspect.signature(model.forward) == signature
    assert torch.equal(got, expected)
    assert got.requires_grad
    assert torch.equal(seen.calls[0].outputs, expected)
    assert seen.calls[0].seconds > 0


def test_the_model_is_as_before_also_after_an_exception():
    model = Picky()
    forward = Picky.forward
    with pytest.raises(ZeroDivisionError), observe(model):
        raise ZeroDivisionError
    with observe(model) as seen:
        assert not model._forward_hooks  # torch's fast paths are not taken with them
        assert not model._forward_pre_hooks
        with pytest.raises(ValueError, match="not three"):
            model(torch.ones(3))
    assert Picky.forward is forward
    assert "forward" not in vars(model)
    assert seen.calls == []


def test_the_fast_path_of_an_encoder_layer_is_taken():
    model = torch.nn.TransformerEncoderLayer(64, 4, 256, batch_first=True).eval()
    x = torch.randn(2, 40, 64)
    with torch.no_grad():
        expected = model(x)
        with observe(model) as seen:
            got = model(x)
    assert torch.equal(got, expected)
    assert torch.equal(seen.calls[0].outputs, expected)


def test_calls_without_hooks_are_recorded_too():
    class OwnCall(torch.nn.Linear):
        def __call__(self, x):
            return self.forward(x)

    model = OwnCall(2, 2)
    with observe(model) as seen:
        model(torch.ones(1, 2))
        model.forward(torch.ones(2, 2))
    assert [len(call.args[0]) for call in seen.calls] == [1, 2]


def test_a_call_that_a_hook_of_all_modules_refuses_is_not_recorded():
    model = torch.nn.Linear(2, 2)

    def refuse(module, args):
        if len(args[0]) == 3:
            raise ValueError("not three")

    hook = torch.nn.modules.module.register_module_forward_pre_hook(refuse)
    try:
        with observe(model) as seen:
            model(torch.ones(1, 2))
            with pytest.raises(ValueError, match="not three"):
                model(torch.ones(3, 2))
            model(torch.ones(2, 2))
    finally:
        hook.remove()
    assert [len(call.args[0]) for call in seen.calls] == [1, 2]


def test_a_block_may_begin_while_another_thread_is_inside_the_model():
    begun, entered = threading.Event(), threading.Event()

    class Waiting(torch.nn.Module):
        def forward(self, x):
            begun.set()
            assert entered.wait(timeout=30)
            return x + 1

    model, results = Waiting(), []
    model.register_forward_hook(lambda *_: None)
    thread = threading.Thread(target=lambda: results.append(model(torch.zeros(1))))
    thread.start()
    assert begun.wait(timeout=30)
    with observe(model) as seen:
        entered.set()
        thread.join()
        model(torch.zeros(2))
    assert results == [torch.ones(1)]
    assert [len(call.args[0]) for call in seen.calls] == [2]


def test_a_call_that_raises_leaves_no_trace_in_the_next():
    model = Picky()
    with observe(model) as seen:
        model(torch.ones(2))
        with pytest.raises(ValueError, match="not three"):
            model(torch.ones(3))
        model(torch.ones(4))
    assert [call.args[0].shape[0] for call in seen.calls] == [2, 4]
    assert [call.outputs.shape[0] for call in seen.calls] == [2, 4]


def test_recursive_calls_keep_their_own_inputs():
    model = Countdown()
    with observe(model) as seen:
        model(torch.ones(3))
    assert [call.args[0].shape[0] for call in seen.calls] == [1, 2, 3]
    assert [call.outputs.item() for call in seen.calls] == [10, 11, 12]


def test_threads_keep_their_own_inputs():
    barrier = threading.Barrier(4)

    class Meeting(torch.nn.Module):
        def forward(self, x):
            barrier.wait(timeout=30)  # all calls have begun before the first ends
            return x + 1

    model = Meeting()
    with observe(model) as seen:
        threads = [
            threading.Thread(target=model, args=(torch.full((n,), float(n)),)) for n in range(4)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert len(seen.calls) == 4
    assert all(torch.equal(call.args[0] + 1, call.outputs) for call in seen.calls)
    assert sorted(len(call.args[0]) for call in seen.calls) == [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("model", "message"),
    [
        ("model", "observe takes a module, not str"),
        (torch.nn.Linear, "takes a module, not type"),
        (lambda x: x, "takes a module, not function"),
    ],
)
def test_what_is_no_module_is_refused(model, message):
    with pytest.raises(UsageError, match=message), observe(model):
        pytest.fail("it must not start")


@pytest.mark.filterwarnings("ignore:.*torch.jit")
def test_a_module_of_torch_jit_is_refused():
    model = torch.jit.script(torch.nn.Linear(2, 2))
    with pytest.raises(UsageError, match="give the module it was made of"), observe(model):
        pytest.fail("it must not start")


def test_blocks_may_be_nested():
    model = torch.nn.Linear(2, 2)
    with observe(model) as outer:
        model(torch.ones(1, 2))
        with observe(model) as inner:
            model(torch.ones(2, 2))
    assert (len(outer.calls), len(inner.calls)) == (2, 1)


def test_limit_keeps_the_first_calls():
    model = torch.nn.Linear(2, 2)
    with observe(model, limit=2) as seen:
        for n in range(1, 5):
            model(torch.ones(n, 2))
    assert [call.args[0].shape[0] for call in seen.calls] == [1, 2]


def test_limit_holds_for_calls_within_a_call():
    with observe(model := Countdown(), limit=1) as seen:
        model(torch.ones(3))
    assert [call.args[0].shape[0] for call in seen.calls] == [1]  # the first that ends


def test_limit_holds_for_threads():
    barrier = threading.Barrier(4)

    class Meeting(torch.nn.Module):
        def forward(self, x):
            barrier.wait(timeout=30)
            return x

    model = Meeting()
    with observe(model, limit=2) as seen:
        threads = [threading.Thread(target=model, args=(torch.ones(1),)) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert len(seen.calls) == 2


@pytest.mark.parametrize("limit", ["3", -1, 2.0, True])
def test_a_limit_that_is_no_number_of_calls_is_refused(limit):
    with (
        pytest.raises(UsageError, match="limit is a number of calls"),
        observe(torch.nn.ReLU(), limit=limit),
    ):
        pytest.fail("it must not start")


def test_values_of_every_kind_go_through():
    class Double(torch.nn.Module):
        def forward(self, x, extra=None):
            return x * 2

    model, x = Double(), torch.ones(3, 2)
    itself = [x]
    itself.append(itself)
    with observe(model) as seen:
        got = model(x, itself)
        model(x, extra=torch.nested.nested_tensor([x[0], x[1]], layout=torch.jagged))
        model(x.to_sparse())
        assert torch.equal(torch.func.vmap(model)(x), got)
    assert torch.equal(got, x * 2)
    assert len(seen.calls) == 4
    assert torch.equal(seen.calls[0].args[1][0], x)


def test_what_was_inferred_grows_with_the_calls():
    model = torch.nn.Linear(2, 2)
    with observe(model) as seen:
        model(torch.ones(1, 2))
        assert seen.dynamic_names == ()
        model(torch.ones(2, 2))
        assert seen.dynamic_names == ("batch_size",)


def test_nothing_is_recorded_while_torch_traces():
    model = torch.nn.Linear(2, 2)
    with observe(model) as seen:
        torch.export.export(model, (torch.ones(3, 2),))
        torch.export.export(model, (torch.ones(3, 2),), strict=True)
        make_fx(model)(torch.ones(3, 2))
        torch.fx.symbolic_trace(model)
        model(torch.ones(4, 2))
    assert [call.args[0].shape[0] for call in seen.calls] == [4]


def test_nothing_is_recorded_while_a_compiler_traces():
    model = torch.nn.Linear(2, 2)
    x = torch.ones(3, 2)
    with observe(model) as seen:
        got = torch.compile(model, backend="eager")(x)
    assert seen.calls == []
    torch.testing.assert_close(got, model(x))


def test_generate_is_seen_call_by_call(llm):
    prompts = [torch.arange(2 * 5).reshape(2, 5), torch.arange(3 * 7).reshape(3, 7)]
    masks = [torch.ones_like(p).index_fill(1, torch.tensor([0]), 0) for p in prompts]
    runs = list(zip(prompts, masks, strict=True))
    options = {"max_new_tokens": 3, "do_sample": False, "pad_token_id": 0}
    expected = [llm.generate(p, attention_mask=mask, **options) for p, mask in runs]
    with observe(llm) as seen:
        got = [llm.generate(p, attention_mask=mask, **options) for p, mask in runs]
    assert all(torch.equal(a, b) for a, b in zip(expected, got, strict=True))

    lengths = [call.kwargs["input_ids"].shape[1] for call in seen.calls]
    assert lengths == [5, 1, 1, 7, 1, 1]
    prefill, decode, *_ = (seen.normalized(call)[1].get(CACHE) for call in seen.calls)
    if prefill is not None:  # transformers 5.0 gives none to the first call
        assert all(layer.keys is None for layer in prefill.layers)
    assert [layer.keys.shape[2] for layer in decode.layers] == [5, 5]

    sizes = {a.name: [str(axis.size) for axis in a.axes] for a in seen.arguments}
    assert sizes["input_ids"] == ["batch_size", "sequence_length"]
    assert sizes["position_ids"] == ["batch_size", "sequence_length"]
    assert sizes["attention_mask"] == ["batch_size", "past_sequence_length + sequence_length"]
    for name in ("past_key_values.0.key", "past_key_values.1.value"):
        assert sizes[name] == ["batch_size", "1", "past_sequence_length", "16"]
    assert seen.dynamic_names == ("batch_size", "sequence_length", "past_sequence_length")
    assert seen.sizes_of(seen.calls[0]) == {
        "batch_size": 2, "sequence_length": 5, "past_sequence_length": 0,
    }  # fmt: skip
    assert seen.sizes_of(seen.best)["past_sequence_length"] > 0


def test_a_cache_that_grows_in_place_is_kept_as_it_was(llm):
    cache = make_dynamic_cache([(torch.ones(2, 1, 4, 16), torch.ones(2, 1, 4, 16))] * 2)
    with observe(llm) as seen, torch.no_grad():
        llm(torch.ones(2, 3, dtype=torch.int64), **{CACHE: cache})
    assert cache.get_seq_length() == 7
    assert seen.calls[0].kwargs[CACHE].get_seq_length() == 4
