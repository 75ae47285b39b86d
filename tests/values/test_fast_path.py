from __future__ import annotations

import threading

import pytest
import torch

from torchferry.values.fast_path import disable_fast_paths, enable_fast_paths, has_fast_path

is_enabled = torch.backends.mha.get_fastpath_enabled


def padded():
    torch.manual_seed(0)
    layer = torch.nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    model = torch.nn.TransformerEncoder(layer, 1).eval()
    padding = torch.tensor([[False] * 4, [False, False, True, True]])
    return lambda: model(torch.ones(2, 4, 8), src_key_padding_mask=padding)


@torch.no_grad()
@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_padded_places_are_computed_not_zeroed():
    run = padded()
    assert run()[1, 2:].abs().max() == 0
    with disable_fast_paths():
        slow = run()
        assert slow[1, 2:].abs().max() > 0
        with enable_fast_paths():
            assert run()[1, 2:].abs().max() == 0
        assert torch.equal(run(), slow)
    assert run()[1, 2:].abs().max() == 0


@pytest.mark.parametrize("before", [True, False])
def test_the_switch_is_as_before_after_an_error_and_nested_blocks(before):
    torch.backends.mha.set_fastpath_enabled(before)
    try:
        with disable_fast_paths():
            with disable_fast_paths(), enable_fast_paths():
                assert is_enabled() is before
            assert not is_enabled()
        with pytest.raises(ZeroDivisionError), disable_fast_paths():
            raise ZeroDivisionError
        assert is_enabled() is before
        with enable_fast_paths():
            assert is_enabled() is before
    finally:
        torch.backends.mha.set_fastpath_enabled(True)


def test_the_last_block_of_all_threads_restores_it():
    inside, go_on = threading.Event(), threading.Event()

    def other():
        with disable_fast_paths():
            inside.set()
            go_on.wait(10)

    thread = threading.Thread(target=other)
    with disable_fast_paths():
        thread.start()
        inside.wait(10)
    assert not is_enabled()  # the other thread is within its block
    go_on.set()
    thread.join()
    assert is_enabled()


def test_which_models_have_it():
    assert has_fast_path(torch.nn.Sequential(torch.nn.MultiheadAttention(4, 2)))
    assert not has_fast_path(torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.LSTM(4, 4)))
