"""The field cases of modules, libraries and data; see `field_cases`."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from field_notes import make_notes as _notes
from field_notes import rand as _rand
from torch import nn


def decoder_with_a_causal_mask():
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.decoder = nn.TransformerDecoder(
                nn.TransformerDecoderLayer(16, 2, 32, batch_first=True), 1
            )

        def forward(self, x, memory):
            return self.decoder(
                x, memory, tgt_mask=nn.Transformer.generate_square_subsequent_mask(x.shape[1])
            )

    return (
        Model(),
        [(_rand(2, 5, 16), _rand(2, 4, 16)), (_rand(3, 7, 16), _rand(3, 6, 16))],
        [(_rand(1, 2, 16), _rand(1, 3, 16))],
        _notes(
            kind="tests of values in PyTorch's own modules that only choose between equal ways"
        ),
    )


def encoder_with_a_mask():
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.encoder = nn.TransformerEncoder(
                nn.TransformerEncoderLayer(16, 2, 32, batch_first=True), 1
            )

        def forward(self, x, mask):
            return self.encoder(x, mask=mask)

    def make(b, t):
        return _rand(b, t, 16), torch.triu(torch.full((t, t), float("-inf")), 1)

    return (
        Model(),
        [make(2, 5), make(3, 7)],
        [make(1, 4)],
        _notes(kind="PyTorch's fused fast paths are off in capture and in the reference"),
    )


def length_of_a_tensor():
    class Model(nn.Module):
        def forward(self, x):
            return x + torch.zeros(len(x), 1)

    return (
        Model(),
        [(_rand(2, 3),), (_rand(5, 3),)],
        [(_rand(1, 3),), (_rand(7, 3),)],
        _notes(kind="len(x), and every strategy before a size is given up"),
    )


def sizes_as_a_tensor():
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv = nn.Conv2d(3, 4, 3, 8, 1)

        def forward(self, x):
            y = self.conv(x)
            h, w = y.shape[-2:]
            return y / torch.as_tensor([(h, w)], dtype=torch.long).sum()

    return (
        Model(),
        [(_rand(2, 3, 64, 96),), (_rand(3, 3, 96, 80),)],
        [(_rand(1, 3, 40, 56),)],
        _notes(kind="every spelling of a tensor made of sizes"),
    )


def shape_as_tensor():
    class Model(nn.Module):
        def forward(self, x):
            return x / torch._shape_as_tensor(x)[1:].max().to(x.dtype)

    return (
        Model(),
        [(_rand(2, 3),), (_rand(4, 5),)],
        [(_rand(1, 7),)],
        _notes(kind="spellings that detection libraries use"),
    )


def attribute_set_in_every_call():
    class Model(nn.Module):
        def forward(self, x):
            self.grid = torch.arange(x.shape[-1]).float()
            return x + self.grid

    return (
        Model(),
        [(_rand(2, 9),), (_rand(3, 5),)],
        [(_rand(1, 4),)],
        _notes(kind="state that is written before it is read is no state"),
    )


def bag_with_a_last_offset():
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.bag = nn.EmbeddingBag(20, 6, mode="mean", padding_idx=3, include_last_offset=True)

        def forward(self, index, offset):
            return self.bag(index, offset)

    return (
        Model(),
        [
            (torch.arange(8), torch.tensor([0, 4, 8])),
            (torch.arange(11), torch.tensor([0, 3, 7, 11])),
        ],
        [(torch.arange(6), torch.tensor([0, 6]))],
        _notes(kind="inputs with a contract: made ones may be illegal, may even kill PyTorch"),
    )


def derivative_in_forward():
    class Model(nn.Module):
        def forward(self, x):
            with torch.enable_grad():
                y = x.detach().requires_grad_(True)
                return torch.autograd.grad(torch.tanh(y).sum(), y)[0]

    return (
        Model(),
        [(_rand(2, 3),), (_rand(4, 3),)],
        [(_rand(1, 3),)],
        _notes(
            "equal_or_refused",
            says=("autograd.grad",),
            kind="forces, score functions: trace them, or name the line",
        ),
    )


def loop_that_fills_a_tensor():
    class Model(nn.Module):
        def forward(self, x):
            h = torch.zeros(x.shape[0], x.shape[2])
            out = torch.zeros_like(x)
            for i in range(x.shape[1]):
                h = 0.9 * h + x[:, i]
                out[:, i] = h
            return out

    return (
        Model(),
        [(_rand(2, 5, 3),), (_rand(3, 7, 3),)],
        [(_rand(1, 11, 3),), (_rand(2, 1, 3),)],
        _notes(kind="recurrences over a dynamic axis become scans on their own"),
    )


def branch_on_a_constant_buffer():
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("k", torch.tensor(4))

        def forward(self, x):
            if self.k - 2 <= 5:
                x = x * 2
            return x

    return (
        Model(),
        [(_rand(2, 3),), (_rand(4, 3),)],
        [(_rand(1, 3),)],
        _notes(kind="buffers that nothing writes are constants"),
    )


def singular_values_only():
    class Model(nn.Module):
        def forward(self, x):
            return torch.linalg.svd(x, full_matrices=False)[1]

    return (
        Model(),
        [(_rand(2, 4, 3),), (_rand(3, 4, 3),)],
        [(_rand(1, 4, 3),)],
        _notes(kind="results that nobody reads need no form"),
    )


def ties_in_topk():
    class Model(nn.Module):
        def forward(self, x):
            s = (x * 0).sum(-1) - 1.5
            return torch.gather(x, 1, s.topk(3).indices[..., None].expand(-1, -1, x.shape[-1]))

    return (
        Model(),
        [(_rand(2, 9, 4),), (_rand(3, 12, 4),)],
        [(_rand(1, 7, 4),)],
        _notes("equal_or_refused", says=("tie", "equal"), kind="export judges as compare does"),
    )


def int8_weights_stay_int8():
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("w", torch.randint(-127, 127, (512, 256), dtype=torch.int8))
            self.register_buffer("s", torch.rand(512) * 0.01)

        def forward(self, x):
            return F.linear(x, self.w.to(x.dtype)) * self.s

    return (
        Model(),
        [(_rand(2, 256),), (_rand(5, 256),)],
        [(_rand(1, 256),)],
        _notes(
            atol=1e-3,
            kind="folding never makes a weight larger: at most 200,000 bytes on disk here",
        ),
    )


def length_read_from_a_tensor():
    class Model(nn.Module):
        def forward(self, x, lengths):
            steps = torch.arange(int(lengths.max()))
            return (steps[None] < lengths[:, None]).float() @ torch.ones(
                steps.shape[0], 2
            ) + x.mean((1, 2))[:, None]

    return (
        Model(),
        [(_rand(2, 9, 4), torch.tensor([3, 6])), (_rand(3, 12, 4), torch.tensor([2, 11, 5]))],
        [(_rand(1, 7, 4), torch.tensor([7]))],
        _notes(
            kind="sizes that the data decides are sizes like others, bounds checked when it runs"
        ),
    )


def quantization_aware():
    from torch.ao.quantization import FakeQuantize, MovingAverageMinMaxObserver

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.fake = FakeQuantize(
                observer=MovingAverageMinMaxObserver,
                quant_min=0,
                quant_max=255,
                dtype=torch.quint8,
            )
            self.linear = nn.Linear(4, 4)

        def forward(self, x):
            return self.linear(self.fake(x))

    model = Model()
    model(_rand(8, 4))
    model.fake.disable_observer()
    return (
        model,
        [(_rand(2, 4),), (_rand(7, 4),)],
        [(_rand(1, 4),)],
        _notes(
            kind="fake quantization whose scale is a tensor becomes QuantizeLinear and "
            "DequantizeLinear",
        ),
    )
