from __future__ import annotations

import pytest
import torch

from torchferry import export
from torchferry.exporter.verify.fast_path import fast_path_note
from torchferry.judge.tolerance import Tolerance
from torchferry.observer import observe

pytestmark = pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
LIMIT = Tolerance.of(torch.float32)


class Encodes(torch.nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        layer = torch.nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
        self.encoder = torch.nn.TransformerEncoder(layer, 2)

    def forward(self, x, padding):
        return self.encoder(x, src_key_padding_mask=padding)


def padded(batch, length, kept):
    return torch.randn(batch, length, 8), (torch.arange(length) >= kept)[None].repeat(batch, 1)


def seen_of(model, sets):
    with torch.no_grad(), observe(model) as seen:
        for one in sets:
            model(*one)
    return seen


def test_padded_places_are_those_of_the_modules_and_the_note_says_so_once():
    model = Encodes().eval()
    seen = seen_of(model, [padded(2, 5, 3), padded(3, 7, 7)])
    program = export(model, seen)
    assert program.report.ok, program.report.problems
    assert str(program.report.sections).count("fast path for transformer encoders") == 1
    assert "at padded places" in program.report.data["note"]
    x, padding = padded(1, 4, 2)
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        with torch.no_grad():
            want = model(x, padding)
    finally:
        torch.backends.mha.set_fastpath_enabled(True)
    torch.testing.assert_close(program(x, padding), want, atol=1e-4, rtol=1e-4)
    assert want[0, 2:].abs().max() > 0


def test_no_note_where_nothing_is_padded_or_there_is_no_such_module():
    model = Encodes().eval()
    assert fast_path_note(model, seen_of(model, [padded(2, 5, 5)]), LIMIT) == ""
    relu = torch.nn.ReLU()
    assert fast_path_note(relu, seen_of(relu, [(torch.ones(2),)]), LIMIT) == ""
