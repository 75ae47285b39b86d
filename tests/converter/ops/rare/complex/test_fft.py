"""Fourier transforms against eager."""

import pytest
import torch
from op_case import check

aten = torch.ops.aten
fft = torch.fft
G = torch.Generator().manual_seed(0)
REAL = [(torch.randn(n, 5, 12, generator=G),) for n in (2, 3, 1)]
COMPLEX = [(torch.randn(n, 5, 12, dtype=torch.complex64, generator=G),) for n in (2, 3, 1)]
LONG = [(torch.randn(2, n, generator=G),) for n in (64, 63, 100, 7)]
NORMS = ("backward", "ortho", "forward")

CASES = [
    *(
        (aten.fft_fft.default, lambda x, m=m: fft.fft(x, norm=m), s)
        for m in NORMS
        for s in (REAL, COMPLEX)
    ),
    *((aten.fft_ifft.default, lambda x, m=m: fft.ifft(x, norm=m), COMPLEX) for m in NORMS),
    *((aten.fft_rfft.default, lambda x, m=m: fft.rfft(x, norm=m), REAL) for m in NORMS),
    *((aten.fft_irfft.default, lambda x, m=m: fft.irfft(x, norm=m), COMPLEX) for m in NORMS),
    *(
        (aten.fft_irfft.default, lambda x, n=n: fft.irfft(x, n=n), COMPLEX)
        for n in (7, 8, 30, 1, 2)
    ),
    *((aten.fft_fft.default, lambda x, n=n: fft.fft(x, n=n), COMPLEX) for n in (7, 16)),
    *((aten.fft_fft.default, lambda x, d=d: fft.fft(x, dim=d), COMPLEX) for d in (0, 1, -2)),
    *((None, lambda x, d=d: fft.rfft(x, dim=d), REAL) for d in (0, 1)),
    (None, fft.fft2, COMPLEX),
    (None, fft.ifft2, COMPLEX),
    (None, fft.fftn, COMPLEX),
    (None, fft.rfftn, REAL),
    (None, fft.rfft2, REAL),
    (None, fft.irfft2, COMPLEX),
    (None, lambda x: fft.fft2(x, s=(4, 6)), COMPLEX),
    (None, lambda x: fft.irfftn(x, norm="ortho"), COMPLEX),
    (None, fft.hfft, COMPLEX),
    (None, fft.ihfft, REAL),
    (None, fft.fftshift, REAL),
    (None, lambda x: fft.ifftshift(x, dim=1), COMPLEX),
    (None, lambda x: fft.fft(x.double()), REAL),
    (None, lambda x: fft.irfft(fft.rfft(x), n=x.shape[-1]), LONG),
    (None, lambda x: fft.rfft(x, norm="ortho"), LONG),
    (None, lambda x: (fft.fftfreq(6), fft.rfftfreq(7), x), REAL),
]


@pytest.mark.sample(11)
@pytest.mark.parametrize(("target", "function", "inputs"), CASES)
@pytest.mark.filterwarnings("ignore:An output with one or more elements was resized")
def test_matches_eager(target, function, inputs):
    check(function, *inputs, target=target, tolerance=2e-5)


@pytest.mark.parametrize("size", [997, 1000, 1024])
def test_long_signals_keep_their_digits(size):
    """onnxruntime's float32 transform of 1000 is off by 0.007."""
    check(fft.rfft, (torch.randn(2, size, generator=G),), tolerance=5e-5)


@pytest.mark.parametrize("opset", [18, 20])
def test_each_form_of_the_operator(opset):
    """The axis is an attribute before opset 20."""
    check(lambda x: fft.irfft(fft.fft(x, dim=1)), *REAL, opset=opset)


SIGNALS = [(torch.randn(n, 100, generator=G),) for n in (2, 1, 3)]
WINDOWS = [
    {},
    {"hop_length": 3},
    {"win_length": 12},
    {"win_length": 12, "window": torch.hann_window(12)},
    {"window": torch.hamming_window(16)},
    {"normalized": True},
    {"onesided": False},
    {"center": False},
    {"pad_mode": "constant"},
]


@pytest.mark.filterwarnings("ignore:A window was not provided")
@pytest.mark.parametrize("options", WINDOWS)
@pytest.mark.parametrize("n_fft", [16, 20])
def test_stft(options, n_fft):
    if "window" in options and "win_length" not in options:
        options = {"window": torch.hamming_window(n_fft)}
    check(lambda x: torch.stft(x, n_fft, return_complex=True, **options), *SIGNALS, tolerance=5e-5)


@pytest.mark.filterwarnings("ignore:A window was not provided")
def test_stft_of_one_signal_and_of_other_lengths():
    sets = [(torch.randn(n, generator=G),) for n in (100, 57, 200)]
    check(
        lambda x: torch.view_as_real(torch.stft(x, 16, return_complex=True)), *sets, tolerance=5e-5
    )


@pytest.mark.parametrize("options", [{}, {"length": 90}, {"normalized": True}, {"hop_length": 3}])
def test_istft_gives_the_signal_back(options):
    """From the frequencies, whatever they are."""
    window = torch.hann_window(16)

    def function(x):
        return torch.istft(x, 16, window=window, **options)

    sets = [(torch.randn(n, 9, 26, dtype=torch.complex64, generator=G),) for n in (2, 1)]
    check(function, *sets, tolerance=5e-5)
    check(function, (sets[0][0][0],), tolerance=5e-5)
