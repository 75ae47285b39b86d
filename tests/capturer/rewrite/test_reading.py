import pytest
import torch

from torchferry.capturer.rewrite.reading import as_bool, as_float, as_int, item, read

X = torch.tensor([1.0, 2.0])


def test_numbers_that_are_asked_for_stay_tensors():
    tenth = torch.tensor([0.1])
    assert (item(tenth) > 0.1).item() is (tenth.item() > 0.1)
    assert item(torch.tensor(True)).dtype == torch.bool
    assert item(torch.tensor([3], dtype=torch.int8)).dtype == torch.int64
    assert (as_int(torch.tensor(-2.7)).item(), as_int(True), as_int("3")) == (-2, 1, 3)
    assert (as_float(torch.tensor(2)).item(), as_float("2")) == (2.0, 2.0)
    assert (as_bool(torch.tensor(2.0)).item(), as_bool([])) == (True, False)
    with pytest.raises(RuntimeError):
        item(X)


def test_what_is_read_without_a_trace_is_a_number():
    assert (read(torch.tensor(2.5)), read(torch.tensor(0), bool)) == (2.5, False)
    assert (read("2.5", float), read([], bool)) == (2.5, False)
