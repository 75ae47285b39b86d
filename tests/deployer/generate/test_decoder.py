"""A decoder over a session: the cache, calls without generate, errors."""

import numpy as np
import onnxruntime
import pytest
import torch

import torchferry as tf
from torchferry.deployer.generate.decoder import load_decoder
from torchferry.errors import RunError, UsageError


def test_the_cache_grows_without_a_copy_of_what_the_session_made(deployed, monkeypatch):
    model = tf.load(deployed[0])
    first = model(torch.tensor([[5, 6, 7]]))
    held = first["cache"] if "cache" in first else first["past_key_values"]
    fed = []
    run = model.session.run_with_ort_values
    made = dict(held.values)
    monkeypatch.setattr(
        type(model.session), "run_with_ort_values",
        lambda self, outputs, feeds: fed.append(feeds) or run(outputs, feeds),
    )  # fmt: skip
    model(torch.tensor([[8]]), past_key_values=held)
    assert all(fed[0][name] is value for name, value in made.items())
    assert held.get_seq_length() == 4
    assert held.values["past_key_values.0.key"].shape() == [1, 2, 4, 8]
    whole = model(torch.tensor([[5, 6, 7, 8]])).logits
    again = model(torch.tensor([[5, 6, 7]]))
    cache = again["cache"] if "cache" in again else again["past_key_values"]
    step = model(torch.tensor([[8]]), past_key_values=cache).logits
    assert torch.allclose(whole[:, -1:], step, atol=1e-5)


def test_beams_are_reordered_and_forgetting_is_refused(deployed):
    from torchferry.deployer.generate.cache import cache_class

    cache = cache_class()()
    rows = np.arange(2, dtype=np.float32).reshape(2, 1, 1, 1)
    cache.values = {"past_key_values.0.key": onnxruntime.OrtValue.ortvalue_from_numpy(rows)}
    cache.reorder_cache(torch.tensor([1, 1]))
    assert cache.values["past_key_values.0.key"].numpy().ravel().tolist() == [1, 1]
    with pytest.raises(UsageError, match="no assisted generation"):
        cache.crop(1)


def test_what_does_not_fit_is_said(deployed, tmp_path):
    with pytest.raises(UsageError, match="no model at"):
        load_decoder(deployed[0], tmp_path / "none.onnx")
    (tmp_path / "bad.onnx").write_bytes(b"x")
    with pytest.raises(RunError, match="onnxruntime cannot load"):
        load_decoder(deployed[0], tmp_path / "bad.onnx")


def test_a_failure_that_no_input_explains_is_onnxruntimes_own(deployed, monkeypatch):
    model = load_decoder(deployed[0], deployed[0] / "onnx/model.onnx", threads=1)

    def fail(*_):
        raise RuntimeError("no\n memory")

    monkeypatch.setattr(type(model.session), "run_with_ort_values", fail)
    with pytest.raises(RunError, match="onnxruntime failed: no memory"):
        model(torch.tensor([[5]]))
