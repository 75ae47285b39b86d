"""Packed sequences of any batch and any lengths, through the layers and back."""

import pytest
import torch
from torch import nn
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence

import torchferry as tf


class Layers(nn.Module):
    """Layers between packing and padding; the longest sequence may be shorter than the input."""

    def __init__(self, layer, is_sorted=False, total=False, batch_first=True, **settings):
        super().__init__()
        self.layers = layer(4, 5, batch_first=batch_first, **settings)
        self.is_sorted, self.total, self.batch_first = is_sorted, total, batch_first

    def forward(self, x, lengths, *states):
        packed = pack_padded_sequence(x, lengths, self.batch_first, self.is_sorted)
        packed, states = self.layers(packed, *states)
        total = x.shape[1 if self.batch_first else 0] if self.total else None
        return pad_packed_sequence(packed, self.batch_first, 0.5, total), states


class Between(nn.Module):
    """What the data themselves go through, before and after a layer."""

    def __init__(self):
        super().__init__()
        self.embedding, self.layer = nn.Embedding(9, 4), nn.GRU(4, 4, bidirectional=True)
        self.head = nn.Linear(8, 4)

    def forward(self, tokens, lengths):
        packed = pack_padded_sequence(tokens, lengths, enforce_sorted=False)
        words = PackedSequence(self.embedding(packed.data), *packed[1:])
        found, last = self.layer(words)
        found = found._replace(data=self.head(found.data) + words.data)
        return pad_packed_sequence(found)[0], last


def sets(*lengths, longest=0):
    times = [max(one) + longest for one in lengths]
    return [(torch.randn(len(one), t, 4), torch.tensor(one))
            for one, t in zip(lengths, times, strict=True)]  # fmt: skip


SEEN, LATER = [(6, 4), (2, 5, 3)], [(4,), (1, 7, 2, 7), (3, 1)]
CASES = {
    "lstm": Layers(nn.LSTM, num_layers=2, bidirectional=True),
    "gru": Layers(nn.GRU, total=True),
    "sorted": Layers(nn.LSTM, is_sorted=True),
    "rnn": Layers(nn.RNN, nonlinearity="relu", bias=False),
}


def check(model, seen, later):
    program = tf.export(model.eval(), seen)
    assert program.report.ok, program.report.problems
    for inputs in later:
        torch.testing.assert_close(program(*inputs), model(*inputs), atol=1e-5, rtol=1e-4)


@pytest.mark.sample(1)
@pytest.mark.parametrize("name", CASES)
def test_layers(name):
    torch.manual_seed(0)
    order = sorted if name == "sorted" else list
    seen, later = ([tuple(order(one))[::-1] for one in group] for group in (SEEN, LATER))
    check(CASES[name], sets(*seen, longest=name == "gru"), sets(*later, longest=2))


def test_states_that_are_given_and_time_first():
    torch.manual_seed(0)
    model = Layers(nn.LSTM, batch_first=False)

    def inputs(*lengths):
        ((x, each),) = sets(lengths)
        states = torch.randn(1, len(lengths), 5), torch.randn(1, len(lengths), 5)
        return x.transpose(0, 1), each, states

    check(model, [inputs(6, 4), inputs(2, 5, 3)], [inputs(4), inputs(1, 7, 2, 7)])


def test_data_in_between():
    torch.manual_seed(0)

    def inputs(*lengths):
        return torch.randint(0, 9, (max(lengths), len(lengths))), torch.tensor(lengths)

    check(Between(), [inputs(6, 4), inputs(2, 5, 3)], [inputs(4), inputs(1, 7, 2, 7)])


def test_a_write_in_place_beside_the_layer():
    """The program is traced again, with every length dynamic as before."""

    class Writes(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.LSTM(4, 5, batch_first=True)

        def forward(self, x):
            found, _ = self.layer(x)
            kept = torch.zeros_like(found)
            kept[:, 0] = found[:, 0]
            return kept.add_(found)

    torch.manual_seed(0)
    model = Writes()
    check(model, [(torch.randn(2, 6, 4),), (torch.randn(3, 5, 4),)], [(torch.randn(1, 9, 4),)])
