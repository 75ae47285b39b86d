from types import SimpleNamespace

import pytest

from torchferry.errors import UsageError
from torchferry.seams import huggingface


def test_experts_have_float64():
    config = SimpleNamespace(_experts_implementation="grouped_mm")
    huggingface.experts_in_float64(config)
    assert config._experts_implementation == "batched_mm"
    other = SimpleNamespace()
    huggingface.experts_in_float64(other)
    huggingface.experts_in_float64(None)
    assert not vars(other)


def test_configurations_and_classes():
    transformers = pytest.importorskip("transformers")
    config = transformers.LlamaConfig(attn_implementation="eager")
    assert huggingface.attention_of(config) == "eager"
    assert huggingface.attention_of(object()) is None
    classes = huggingface.classes_of(transformers.AutoModel)
    assert classes[transformers.LlamaConfig] is transformers.LlamaModel
    with pytest.raises(UsageError, match="_model_mapping, which torchferry needs for the zoo"):
        huggingface.classes_of(object())


def test_patches_of_transformers(monkeypatch):
    pytest.importorskip("transformers")
    names = {name for _, name, _ in huggingface.export_patches()}
    assert "scaled_dot_product_attention" in names
    monkeypatch.setattr(huggingface, "probe", lambda _, default=None: default)
    assert huggingface.export_patches() == ()


def test_what_caches_keep_beside():
    cache = SimpleNamespace()
    huggingface.set_cache_dtype(cache, 1)
    huggingface.set_window(cache, 2)
    assert vars(cache) == {"_dtype": 1, "_sliding_window_tensor": 2}
