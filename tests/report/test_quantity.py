import pytest

from torchferry.report.quantity import bytes_text, counted, packed_text


@pytest.mark.parametrize(
    ("number", "text"),
    [(0, "0 nodes"), (1, "1 node"), (99_999, "99999 nodes"), (100_000, "0.1 M nodes")],
)
def test_counted(number, text):
    assert counted(number, "node") == text


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1.0 KiB"),
        (2**20, "1.0 MiB"),
        (5 * 2**30, "5.0 GiB"),
        (2**41, "2048.0 GiB"),
    ],
)
def test_bytes_text(count, text):
    assert bytes_text(count) == text


def test_packed_text():
    text = packed_text(1, "int4", 2048, 16384)
    assert text == "1 weight kept in int4: 2.0 KiB instead of 16.0 KiB"
