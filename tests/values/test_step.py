import base64
import json
import zlib

import pytest
import torch

from torchferry.errors import UsageError
from torchferry.values import step
from torchferry.values.step import Step, read_state, state_text, write_state

STATE = {
    "a.tail": torch.randn(2, 3).T,
    "empty": torch.zeros(2, 0, 4),
    "seen": torch.tensor([True, False]),
    "count": torch.tensor(7, dtype=torch.int32),
    "half": torch.ones(3, dtype=torch.bfloat16),
    "z": torch.ones(2, dtype=torch.complex64),
}


def test_a_state_is_text_and_back():
    read = read_state(write_state(STATE))
    assert list(read) == list(STATE)
    for name, value in STATE.items():
        assert read[name].dtype == value.dtype
        assert torch.equal(read[name], value)
        read[name].fill_(0)  # its own memory, which may be written


def test_an_integer_becomes_a_scalar():
    read = read_state(write_state({"step": 3}))["step"]
    assert (read.dtype, read.shape, read.item()) == (torch.int64, (), 3)


def test_zeros_take_little():
    assert len(write_state({"cache": torch.zeros(2**20)})) < 10_000


def test_what_no_metadata_can_hold(monkeypatch):
    with pytest.raises(UsageError, match="state w is torch"):
        write_state({"w": torch.empty(2, dtype=torch.bits8)})
    monkeypatch.setattr(step, "_MOST", 100)
    with pytest.raises(UsageError, match="reset the model"):
        write_state({"w": torch.rand(100)})


def test_a_step_names_its_parts():
    assert Step(1, {}).state_next == {}
    assert state_text(torch.zeros((), dtype=torch.bool)) == "bool, scalar"
    assert state_text(4) == "an integer"


@pytest.mark.parametrize(
    "change",
    [
        {"shape": [3]},
        {"shape": [-2]},
        {"shape": [2**40]},
        {"element": 8},
        {"data": "no base64!"},
        {"data": base64.b64encode(b"not deflated").decode()},
        {"data": base64.b64encode(zlib.compress(bytes(9))).decode()},
        {"other": 1},
    ],
)
def test_a_file_may_say_anything(change):
    stored = json.loads(write_state({"h": torch.zeros(2)}))
    with pytest.raises(UsageError, match="initial state cannot be read"):
        read_state(json.dumps({"h": {**stored["h"], **change}}))


@pytest.mark.parametrize("text", ["", "[1]", '{"h": 1}', "null"])
def test_another_text(text):
    with pytest.raises(UsageError, match="initial state cannot be read"):
        read_state(text)
