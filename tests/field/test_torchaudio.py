"""torchaudio: filters whose operator writes unsaid, and deltas of as many groups as channels."""

import pytest
import torch

import torchferry

audio = pytest.importorskip("torchaudio", exc_type=ImportError)


class Filters(torch.nn.Module):
    def __init__(self, function, *settings):
        super().__init__()
        self.function, self.settings = function, settings

    def forward(self, x):
        return self.function(x, *self.settings)


CASES = {
    "biquad": lambda: Filters(audio.functional.lowpass_biquad, 16000, 900.0),
    "de-emphasis": audio.transforms.Deemphasis,
    "deltas": audio.transforms.ComputeDeltas,
}


@pytest.mark.parametrize("name", CASES)
def test_any_batch_and_length(name):
    torch.manual_seed(0)
    model = CASES[name]()
    sets = [(torch.rand(2, 40) - 0.5,), (torch.rand(3, 64) - 0.5,)]
    program = torchferry.export(model, sets, progress=False)
    assert program.report.ok, program.report.problems
    for shape in ((1, 100), (5, 33)):
        x = torch.rand(shape) - 0.5
        torch.testing.assert_close(program(x), model(x), rtol=1e-4, atol=1e-5)
