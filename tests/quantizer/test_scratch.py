"""The file that tensors are appended to."""

import numpy as np
import pytest

from torchferry.quantizer.scratch import Scratch


def test_chunks_become_one_tensor_and_the_file_goes(tmp_path):
    path = tmp_path / "scratch"
    with Scratch(path) as scratch:
        first = scratch.store("a", iter([np.arange(4).reshape(2, 2), np.arange(2).reshape(1, 2)]))
        second = scratch.store("b", [np.ones(3, np.float32)])
        assert first.const_value.numpy().tolist() == [[0, 1], [2, 3], [0, 1]]
        assert second.const_value.numpy().tolist() == [1, 1, 1]
        assert (second.name, tuple(second.shape)) == ("b", (3,))
    assert not path.exists()


def test_the_file_goes_when_the_block_fails(tmp_path):
    with pytest.raises(ZeroDivisionError), Scratch(tmp_path / "scratch"):
        raise ZeroDivisionError
    assert not list(tmp_path.iterdir())
