"""Small models on which an exporter fails, each the seed of a whole kind.

A case returns ``(model, seen, later, notes)``:

* ``seen``: sets of arguments (tuples or dicts) that are observed before the export;
* ``later``: sets that are tried on the result afterwards, of sizes or values not seen;
* ``notes``: ``expect`` is ``equal`` (every set equals eager), ``refused`` (the export, its report
  or the call says no, and the text contains each of ``says``) or ``equal_or_refused`` (never
  another number without a word); ``options`` go to ``export``; ``atol``.

Each was met by people exporting real models.
"""

from __future__ import annotations

import copy
import dataclasses

import torch
import torch.nn.functional as F
from torch import nn


def _notes(expect="equal", *, says=(), atol=1e-4, options=None, kind=""):
    return {"expect": expect, "says": says, "atol": atol, "options": options or {}, "kind": kind}


def _rand(*shape):
    return torch.randn(*shape)


def condition_in_a_strict_capture():
    class Model(nn.Module):
        def forward(self, x, n):
            int(n.max())  # another strategy captures this model
            return x.sum(-1) if x.shape[-1] % 2 == 0 else x.mean(-1)

    def make(b, t):
        return torch.ones(b, t), torch.tensor([1] * b)

    return (
        Model(),
        [make(2, 16), make(3, 24)],
        [make(2, 9), make(1, 8)],
        _notes(
            "equal_or_refused",
            kind="a condition on sizes holds whichever strategy captured the model",
        ),
    )


def condition_kept_after_verifying():
    class Model(nn.Module):
        def forward(self, x):
            return x.sum(-1) if x.shape[-1] % 2 == 0 else x.mean(-1)

    return (
        Model(),
        [(_rand(2, 16),), (_rand(3, 24),)],
        [(torch.ones(1, 9),), (torch.ones(5, 8),)],
        _notes(
            "equal_or_refused",
            says=("% 2",),
            kind="verified where a named condition holds, refused elsewhere, after save "
            "and load too",
        ),
    )


def condition_on_an_integer():
    class Model(nn.Module):
        def forward(self, x, n):
            return x * 2 if n > 2 else x - 1

    return (
        Model(),
        [(_rand(2, 4), 1), (_rand(3, 4), 2)],
        [(torch.ones(1, 4), 5)],
        _notes(
            "equal_or_refused",
            kind="conditions on integer inputs, and on sizes that only an expression "
            "names, are checked",
        ),
    )


def integer_fixed_by_a_loop():
    class Model(nn.Module):
        def forward(self, x, n):
            for _ in range(n):
                x = x * 2
            return x

    return (
        Model(),
        [(_rand(2, 4), 2), (_rand(3, 4), 3)],
        [(torch.ones(1, 4), 5)],
        _notes(
            "equal_or_refused",
            kind="an input that nothing reads is never accepted with another value",
        ),
    )


def alias_across_a_rewritten_loop():
    class Model(nn.Module):
        def forward(self, x, y):
            total = y * 1
            kept = total
            for row in x:
                total += row
            return kept

    return (
        Model(),
        [(torch.ones(3, 2), torch.zeros(2)), (torch.ones(5, 2), torch.zeros(2))],
        [(torch.ones(4, 2), torch.zeros(2))],
        _notes(
            "equal_or_refused",
            options={"rewrite": True},
            kind="a rewritten statement keeps what other names see",
        ),
    )


def in_place_inside_a_rewritten_branch():
    class Model(nn.Module):
        def forward(self, x, y):
            z = x + 1
            if x.sum() > 0:
                z += y
            return z

    return (
        Model(),
        [(torch.ones(n, 4), torch.ones(n, 4)) for n in (3, 5)],
        [(-torch.ones(2, 4), torch.ones(2, 4))],
        _notes(options={"rewrite": True}, kind="augmented assignments in branches"),
    )


def half_inside_float():
    torch.manual_seed(1)

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(64, 64)

        def forward(self, x):
            return F.linear(x.half(), self.linear.weight.half()).float()

    return (
        Model(),
        [(_rand(3, 64),), (_rand(5, 64),)],
        [(_rand(6, 64),)],
        _notes(
            atol=2e-3,
            kind="the tolerance is that of the narrowest arithmetic inside, autocast too",
        ),
    )


def size_one_axis_indexes():
    class Model(nn.Module):
        def forward(self, x, i, j):
            return x[i, j]

    def make(n, k):
        return torch.rand(6, 5), torch.arange(n)[:, None], torch.arange(k)[None]

    return (
        Model(),
        [make(2, 3), make(4, 2)],
        [make(1, 5), make(3, 1)],
        _notes(kind="broadcasting among index tensors, also where a size is 1"),
    )


def container_of_their_own():
    class Box:
        def __init__(self, t):
            self.t = t

    class Model(nn.Module):
        def forward(self, box):
            return box.t + 1

    return (
        Model(),
        [(Box(_rand(2, 3)),), (Box(_rand(4, 3)),)],
        [],
        _notes("refused", says=("Box", "register"), kind="unknown containers are named"),
    )


def local_dataclass_result():
    @dataclasses.dataclass
    class Out:
        y: torch.Tensor
        z: torch.Tensor

    class Model(nn.Module):
        def forward(self, x):
            return Out(x + 1, x * 2)

    return (
        Model(),
        [(_rand(2, 3),), (_rand(4, 3),)],
        [(_rand(1, 3),)],
        _notes(kind="classes that cannot be imported work in the process that has them"),
    )


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


def cases():
    """Name → function, in the order of the file."""
    return {
        n: f
        for n, f in globals().items()
        if callable(f)
        and getattr(f, "__module__", "") == __name__
        and not n.startswith("_")
        and n not in ("cases", "call", "tensors")
    }


def call(target, given):
    given = copy.deepcopy(given)
    return target(**given) if isinstance(given, dict) else target(*given)


def tensors(value):
    if isinstance(value, torch.Tensor):
        return [value]
    if dataclasses.is_dataclass(value):
        return [t for f in dataclasses.fields(value) for t in tensors(getattr(value, f.name))]
    if isinstance(value, dict):
        return [t for v in value.values() for t in tensors(v)]
    if isinstance(value, (list, tuple)):
        return [t for v in value for t in tensors(v)]
    return []
