import pytest

from torchferry.dims import Dim, parse_size


@pytest.mark.parametrize(
    ("text", "printed"),
    [
        ("batch", "batch"),
        ("cache+seq", "cache + seq"),
        (" 2*s0 - 1 ", "2*s0 - 1"),
        ("((s0 - 1)//2) + 1", "(s0 - 1)//2 + 1"),
        ("Max(1, s0)", "max(s0, 1)"),
        ("Mod(s0, 4)", "s0 % 4"),
        ("s0**2", "s0*s0"),
        ("my dim", "my dim"),
        ("batch.size", "batch.size"),
        ("f(x)", "f(x)"),
        ("CeilToInt(zuf0)", "CeilToInt(zuf0)"),  # of a float
        ("s0**-1", "s0**-1"),
    ],
)
def test_reads(text, printed):
    assert str(parse_size(text)) == printed


def test_numbers_are_ints():
    assert parse_size("12") == 12
    assert parse_size("-3 + 4") == 1


def test_printing_then_parsing_gives_the_same_size():
    s, h = Dim.of("seq"), Dim.of("h")
    for size in (s + 1, 4 * ((h - 1) // 2) + s * h, (s % 3) * 2, -s + h):
        assert parse_size(str(size)) == size


def test_blank_is_refused():
    with pytest.raises(ValueError, match="needs a name"):
        parse_size("  ")
