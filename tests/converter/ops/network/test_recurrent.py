"""Recurrent layers against eager, at other lengths and batch sizes than those exported."""

import pytest
import torch
from op_case import check, export
from torch import nn

from families import in_turn
from torchferry.capturer.patching.patching import torch_export_patches
from torchferry.converter.translate import translate
from torchferry.errors import LoweringFailed

aten = torch.ops.aten
r = torch.randn

# torch.export says it of the list of weights that every recurrent layer keeps
pytestmark = pytest.mark.filterwarnings("ignore:The tensor attributes self._flat_weights")

LAYERS = [(nn.LSTM, aten.lstm.input), (nn.GRU, aten.gru.input), (nn.RNN, aten.rnn_tanh.input)]
SETTINGS = [
    {}, {"bidirectional": True}, {"bias": False, "num_layers": 2},
    {"num_layers": 2, "bidirectional": True, "batch_first": True},
]  # fmt: skip
LENGTHS = (r(5, 2, 3),), (r(7, 1, 3),), (r(1, 4, 3),)


@pytest.fixture(autouse=True)
def any_length():
    """torch.export alone makes the length of the exported sequence a constant."""
    with torch_export_patches(patch_transformers=False):
        yield


@pytest.mark.parametrize(("settings", "layer", "target"), in_turn(SETTINGS, LAYERS))
def test_layers(settings, layer, target):
    check(layer(3, 4, **settings), *LENGTHS, target=target)


@pytest.mark.parametrize(("layer", "target"), LAYERS)
def test_without_a_batch(layer, target):
    check(layer(3, 4), (r(5, 3),), (r(7, 3),), target=target)


def test_relu():
    check(nn.RNN(3, 4, nonlinearity="relu"), *LENGTHS, target=aten.rnn_relu.input)


def test_given_states():
    check(nn.GRU(3, 4, batch_first=True), (r(2, 5, 3), r(1, 2, 4)), (r(1, 7, 3), r(1, 1, 4)))


def test_weights_that_are_inputs():
    def layer(x, hidden, *weights):
        return torch.gru(x, hidden, weights, True, 1, 0.0, False, False, False)

    weights = r(12, 3), r(12, 4), r(12), r(12)
    check(layer, (r(5, 2, 3), r(1, 2, 4), *weights), (r(7, 1, 3), r(1, 1, 4), *weights))


def test_half_precision():
    check(nn.LSTM(3, 4).half(), (r(5, 2, 3).half(),), target=aten.lstm.input)


def test_a_layer_is_one_node_with_its_weights_in_order():
    model = check(nn.LSTM(3, 4), (r(5, 2, 3),), target=aten.lstm.input)
    kinds = [node.op_type for node in model.graph]
    assert kinds.count("LSTM") == 1
    assert not {"Split", "Concat"}.intersection(kinds)


@pytest.mark.parametrize(
    ("cell", "target"),
    [
        (nn.LSTMCell(3, 4), aten.lstm_cell.default),
        (nn.GRUCell(3, 4), aten.gru_cell.default),
        (nn.RNNCell(3, 4, bias=False), aten.rnn_tanh_cell.default),
        (nn.RNNCell(3, 4, nonlinearity="relu"), aten.rnn_relu_cell.default),
    ],
)
def test_cells(cell, target):
    check(cell, (r(2, 3),), (r(1, 3),), target=target)


class Decoder(nn.Module):
    """A cell that is called for each of three steps."""

    def __init__(self, cell):
        super().__init__()
        self.cell = cell

    def forward(self, x):
        state = self.cell(x)
        for _ in range(2):
            state = self.cell(x * 2, state)
        return state


@pytest.mark.parametrize(
    "cell",
    [
        nn.LSTMCell(3, 4),
        nn.GRUCell(3, 4),
        pytest.param(nn.RNNCell(3, 4), marks=pytest.mark.slow),
    ],
)
def test_a_cell_called_again_has_its_weights_once(cell):
    model = check(Decoder(cell), (r(2, 3),), (r(1, 3),))
    weights = [name for name in model.graph.initializers if name.startswith("cell.")]
    assert len(weights) == 3


class Twice(nn.Module):
    def __init__(self, layer):
        super().__init__()
        self.layer = layer

    def forward(self, x):
        y, *_ = self.layer(x)
        return self.layer(y)


@pytest.mark.filterwarnings("ignore:The tensor attributes self.layer._flat_weights")
@pytest.mark.parametrize(
    "layer",
    [
        nn.LSTM(3, 3),
        nn.GRU(3, 3, 2),
        pytest.param(nn.RNN(3, 3), marks=pytest.mark.slow),
    ],
)
def test_a_layer_called_again(layer):
    check(Twice(layer), *LENGTHS)


def test_cells_that_share_some_of_their_weights():
    class Pair(nn.Module):
        def __init__(self):
            super().__init__()
            self.one, self.other = nn.GRUCell(3, 4), nn.GRUCell(3, 4)
            self.other.weight_ih, self.other.bias_ih = self.one.weight_ih, self.one.bias_ih

        def forward(self, x):
            return self.one(x), self.other(x)

    check(Pair(), (r(2, 3),), (r(1, 3),))


REFUSED = [
    (nn.LSTM(3, 4, proj_size=2).eval(), (r(5, 2, 3),), "use proj_size=0"),
    (nn.GRU(3, 4).double(), (r(5, 2, 3).double(),), "use float32"),
    (nn.GRU(3, 4, 2, dropout=0.5).train(), (r(5, 2, 3),), r"call model\.eval\(\)"),
]


@pytest.mark.parametrize(("module", "inputs", "reason"), REFUSED)
def test_refused(module, inputs, reason):
    with pytest.raises(LoweringFailed, match=reason):
        translate(export(module, inputs), 20)


@pytest.mark.parametrize("directions", [1, 2])
def test_packed_data(directions):
    """As many sequences at each step as ``batch_sizes`` says."""

    def layer(data, batch_sizes, hidden, *weights):
        settings = True, 1, 0.0, False, directions == 2
        return torch.gru(data, batch_sizes, hidden, weights, *settings)

    def inputs(*sizes):
        return r(sum(sizes), 3), torch.tensor(sizes), r(directions, sizes[0], 4), *weights

    weights = (r(12, 3), r(12, 4), r(12), r(12)) * directions
    check(layer, inputs(3, 2, 2), inputs(1, 1), inputs(4), target=aten.gru.data)
