"""The empty cache has the graph's own type and sizes."""

from types import SimpleNamespace

import numpy as np
import pytest

from torchferry.deployer.generate.cache import cache_class, cache_name, empty_cache


@pytest.mark.parametrize("kind", ["float", "float16"])
def test_an_empty_cache_has_the_type_of_the_graph(kind):
    value = SimpleNamespace(shape=["batch_size", 2, "past", 8], type=f"tensor({kind})")
    array = empty_cache(value, 3).numpy()
    assert array.shape == (3, 2, 0, 8)
    assert array.dtype == np.dtype(kind if kind == "float16" else "float32")


def test_a_new_cache_holds_nothing():
    pytest.importorskip("transformers")
    assert cache_class()().get_seq_length() == 0
    assert cache_name() in ("cache", "past_key_values")
