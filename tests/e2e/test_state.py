"""State that is lifted, driven by onnxruntime alone and by programs."""

import copy
import threading

import numpy as np
import onnxruntime
import pytest
import torch
from torch import nn

import torchferry as tf
from stateful import MODELS, Counts, Grows, RingBuffer, Tail, calls
from torchferry.capturer import capture
from torchferry.observer import Observation
from versions import at_least


def lifted(model, sets):
    return tf.to_onnx(capture(model, Observation.from_inputs(model, sets), state="lift"))


def other_sizes(sets):
    """Calls of sizes that were not exported, 1 among them where the model takes it."""
    (first,), (second,) = sets
    (axis,) = [i for i in range(first.ndim) if first.shape[i] != second.shape[i]]
    for size in (2, 7, 1, 4):
        yield torch.rand([*first.shape[:axis], size, *first.shape[axis + 1 :]])


def check(got, want):
    pairs = zip(
        torch.utils._pytree.tree_leaves(got), torch.utils._pytree.tree_leaves(want), strict=True
    )
    for one, other in pairs:
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)


@pytest.mark.sample(5)
@pytest.mark.parametrize("name", MODELS)
def test_a_program_carries_the_state(name, tmp_path):
    model, sets = MODELS[name]()
    program = lifted(model, sets)
    loaded = tf.load(program.save(tmp_path / "model.onnx"))
    initial = {key: value.clone() for key, value in program.state.items()}
    inputs = [x for x in other_sizes(sets) if len(x) > 1 or name != "running statistics"]
    for _ in range(2):
        twin = copy.deepcopy(model)
        with torch.no_grad():
            for x in inputs:
                want = twin(x.clone())
                check(program(x), want)
                check(loaded(x), want)
        for one in (program, loaded):
            assert any(not torch.equal(one.state[key], initial[key]) for key in initial)
            one.reset()
            assert all(torch.equal(one.state[key], initial[key]) for key in initial)


def test_onnxruntime_alone_feeds_it_back(tmp_path):
    model, sets = MODELS["ring buffer"]()
    program = lifted(model, sets)
    session = onnxruntime.InferenceSession(program.save(tmp_path / "model.onnx"))
    state = {f"state.{name}": value.numpy() for name, value in program.state.items()}
    assert [i.name for i in session.get_inputs()] == ["x", *state]
    names = [o.name for o in session.get_outputs()]
    assert names == ["output", *(name.replace("state.", "state_next.") for name in state)]
    for x in other_sizes(sets):
        output, *values = session.run(None, {"x": x.numpy(), **state})
        state = dict(zip(state, values, strict=True))
        np.testing.assert_allclose(output, model(x).numpy(), rtol=1e-5)
    assert state["state.at"] == model.at == 4


def test_a_single_run_begins_with_the_initial_state(tmp_path):
    path = lifted(Counts(), calls(3, 3)).save(tmp_path / "model.onnx")
    for _ in range(2):
        assert tf.run(path, torch.ones(1, 3)).tolist() == [[1, 1, 1]]


def test_two_programs_share_nothing_and_a_failed_call_changes_nothing(tmp_path):
    program = lifted(RingBuffer(), calls(3, 3))
    other = tf.load(program.save(tmp_path / "model.onnx"))
    x = torch.rand(2, 3)
    program(x)
    assert (program.state["at"].item(), other.state["at"].item()) == (1, 0)
    before = dict(program.state)
    with pytest.raises(tf.UsageError, match="x has shape 2x4"):
        program(torch.rand(2, 4))
    assert all(program.state[name] is value for name, value in before.items())


def test_the_state_can_be_set():
    program = lifted(Counts(), calls(3, 3))
    program.state["step"] = torch.tensor(10)
    assert program(torch.ones(1, 1, 3)[0]).tolist() == [[11, 11, 11]]
    assert program.state == {"step": torch.tensor(11)}
    program.state = {"step": torch.tensor([1, 2])}
    with pytest.raises(tf.UsageError, match=r"state\.step"):
        program(torch.ones(1, 3))
    program.state = {}
    with pytest.raises(tf.UsageError, match="the state has nothing, and the model takes step"):
        program(torch.ones(1, 3))
    program.reset()
    assert program(torch.ones(1, 3)).tolist() == [[1, 1, 1]]


def test_threads_take_turns():
    program = lifted(Counts(), calls(3, 3))
    threads = [threading.Thread(target=program, args=(torch.ones(1, 3),)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert program.state["step"].item() == 8


def test_a_cache_of_another_length_is_a_state_too():
    program = lifted(Grows(), calls(2, 3, 4, axis=1))
    program.state["keys"] = torch.rand(2, 9, 4)
    assert program(torch.rand(2, 1, 4)).shape == (2, 1, 10)
    assert program.state["keys"].shape == (2, 10, 4)
    program.state["keys"] = torch.rand(3, 9, 4)
    with pytest.raises(tf.UsageError, match=r"state\.keys has shape 3x9x4"):
        program(torch.rand(2, 1, 4))


def test_a_compiled_model_is_as_before():
    model = Tail().eval()
    compiled = torch.compile(copy.deepcopy(model), backend=tf.onnx_custom_backend)
    with torch.no_grad():
        for size in (5, 5, 8):
            x = torch.rand(1, 2, size)
            check(compiled(x), model(x))


class Decoder(nn.Module):
    """A tiny Llama with a static cache of its own, which may be in buffers too."""

    def __init__(self, *, buffers):
        from transformers import LlamaConfig, LlamaForCausalLM, StaticCache

        super().__init__()
        config = LlamaConfig(
            vocab_size=50, hidden_size=16, intermediate_size=32, num_hidden_layers=2,
            num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=64,
        )  # fmt: skip
        self.model = LlamaForCausalLM(config)
        self.cache = StaticCache(config=config, max_cache_len=48)
        self.cache.early_initialization(
            batch_size=2, num_heads=2, head_dim=4, dtype=torch.float32, device="cpu"
        )
        for number, layer in enumerate(self.cache.layers if buffers else ()):
            self.register_buffer(f"key_cache_{number}", layer.keys, persistent=False)

    def forward(self, input_ids):
        return self.model(input_ids, None, None, self.cache, use_cache=True).logits


@pytest.mark.sample(1)
@pytest.mark.skipif(not at_least("transformers", "5.0"), reason="another static cache")
@pytest.mark.parametrize("buffers", [False, True])
def test_a_static_cache(buffers):
    torch.manual_seed(0)
    model = Decoder(buffers=buffers).eval()
    sets = [(torch.randint(0, 50, (2, size)),) for size in (5, 3)]
    program = lifted(model, sets)
    name = "key_cache_0" if buffers else "cache.layers.0.keys"
    assert program.state[name].shape == (2, 2, 48, 4)
    assert "model.model.rotary_emb.inv_freq" not in program.state
    with torch.no_grad():
        for size in (6, 1, 1, 4, 2):
            ids = torch.randint(0, 50, (2, size))
            check(program(ids), model(ids))


class ReturnsState(nn.Module):
    """What it returns is the buffer itself, which the next call writes to."""

    def __init__(self):
        super().__init__()
        self.register_buffer("sum", torch.zeros(3))

    def forward(self, x):
        self.sum += x.sum(0)
        return self.sum


def test_a_result_may_be_the_state_itself():
    sets = [(torch.rand(2, 3),), (torch.rand(4, 3),)]
    made = tf.export(ReturnsState().eval(), sets, state="lift", progress=False)
    assert made.report.ok, made.report.problems
    model = ReturnsState().eval()
    for x in (torch.rand(5, 3), torch.rand(1, 3)):
        check(made(x), model(x))


class Mixes(nn.Module):
    """A state, and arguments with defaults that calls give by position."""

    def __init__(self):
        super().__init__()
        self.h = nn.Buffer(torch.zeros(3))

    def forward(self, x, y=None, gain: float = 1.0):
        self.h = self.h * 0.5 + x.mean(0)
        return (x + self.h) * gain + (0 if y is None else y)


@pytest.mark.parametrize("extra", [(), (torch.ones(3),), (torch.ones(3), 1.0)])
def test_defaults_may_be_given_by_position(extra, tmp_path):
    model = Mixes()
    made = tf.export(copy.deepcopy(model), [(torch.rand(n, 3), *extra) for n in (2, 4)],
                     state="lift", progress=False)  # fmt: skip
    made.save(tmp_path / "out.onnx")
    for program in (made, tf.load(tmp_path / "out.onnx")):
        fresh = copy.deepcopy(model)
        for n in (1, 3):
            x = torch.rand(n, 3)
            torch.testing.assert_close(program(x, *extra), fresh(x, *extra))


class Queue(nn.Module):
    """Keys are written to a place that data decides, as MoCo does."""

    def __init__(self):
        super().__init__()
        self.queue, self.place = nn.Buffer(torch.zeros(3, 8)), nn.Buffer(torch.zeros(1).long())

    def forward(self, keys):
        place, n = int(self.place), keys.shape[0]
        found = keys @ self.queue.clone()
        self.queue[:, place : place + n] = keys.t()
        self.place[0] = (place + n) % 8
        return found


def test_a_queue_is_filled_in_a_row():
    model = Queue()
    made = tf.export(copy.deepcopy(model), [(torch.rand(n, 3),) for n in (2, 4)], state="lift",
                     progress=False)  # fmt: skip
    for n in (2, 4, 1, 1):
        keys = torch.rand(n, 3)
        torch.testing.assert_close(made(keys), model(keys))
