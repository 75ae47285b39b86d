from __future__ import annotations

import torch

from torchferry.comparer.comparison import Tolerance
from torchferry.comparer.eager import explain_eager
from torchferry.comparer.piece import Runner
from torchferry.comparer.reference import of_program
from torchferry.comparer.setting import Setting
from torchferry.converter import convert


def allows(expected, difference):
    return Tolerance.of(torch.float32).allows(difference, exact=not expected.is_floating_point())


def explained(module, program, *args):
    model = convert(program)
    reference = of_program(program, args, {}, model.graph)
    return explain_eager(Setting(model, {}, reference, Runner(), module, (args, {})), allows)


def test_a_right_capture_needs_no_word(small):
    assert explained(small.module, small.program, *small.args) == ([], True)


def test_a_wrong_capture_is_called_so(small):
    with torch.no_grad():
        small.module.head.bias = torch.nn.Parameter(small.module.head.bias + 1)
    notes, captured = explained(small.module, small.program, *small.args)
    (note,) = notes
    assert note.startswith(
        "eager mode differs from the captured program by 1: the capture is wrong"
    )
    assert not captured


def test_what_is_random_in_eager_mode_is_called_so():
    class Noisy(torch.nn.Module):
        def forward(self, x):
            return x + torch.rand_like(x)

    x = torch.rand(20)
    notes, captured = explained(Noisy(), torch.export.export(Noisy(), (x,)), x)
    assert "and from itself: it computes something random" in notes[0]
    assert captured


def test_the_fast_path_of_a_transformer_is_explained_and_left_as_it_was():
    class Masked(torch.nn.Module):
        def __init__(self):
            super().__init__()
            layer = torch.nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
            self.encoder = torch.nn.TransformerEncoder(layer, 1)

        def forward(self, x, padding):
            return self.encoder(x, src_key_padding_mask=padding)

    module = Masked().eval()
    args = torch.rand(2, 4, 8), torch.tensor([[False] * 4, [False, False, True, True]])
    program = torch.export.export(module, args, strict=False)
    notes, captured = explained(module, program, *args)
    assert "the fast path of torch.nn.TransformerEncoder" in notes[0]
    assert captured
    assert torch.backends.mha.get_fastpath_enabled()


def test_inputs_are_not_changed_by_a_module_that_writes_to_them():
    class Writes(torch.nn.Module):
        def forward(self, x):
            return x.mul_(2) + 1

    x = torch.ones(3)
    program = torch.export.export(torch.nn.Identity(), (x,))
    explained(Writes(), program, x)
    assert x.tolist() == [1, 1, 1]
