from __future__ import annotations

import io
import math

import pytest
from rich.console import Console

from torchferry.report import Bars, Cell, Facts, Report, Section, Source, Table
from torchferry.report.text import render

NAME = "model.layers.0.self_attn." + "deep." * 30 + "weight"


def plain(report: Report, encoding: str = "utf-8") -> str:
    """What is written to a file or a pipe of an encoding."""
    raw = io.BytesIO()
    stream = io.TextIOWrapper(raw, encoding=encoding, write_through=True)
    render(report, Console(file=stream))
    return raw.getvalue().decode(encoding)


def terminal(report: Report, width: int = 100, *, no_color: bool = False) -> str:
    stream = io.StringIO()
    render(
        report,
        Console(
            file=stream,
            force_terminal=True,
            width=width,
            no_color=no_color,
            color_system="standard",
            legacy_windows=False,
        ),
    )
    return stream.getvalue()


def of(*blocks: object) -> Report:
    return Report("t", True, "v", (Section("S", blocks),))


def test_the_plain_report(failed):
    assert plain(failed) == (
        "✗ FAILED: logits differs at 3 sizes\n"
        "\n"
        "Dimensions\n"
        "  Dynamic dimensions\n"
        "  dimension    status     verified at   why\n"
        "  ──────────────────────────────────────────────────────────────────\n"
        "  batch_size   verified   1, 2, 3       varies in the recorded calls\n"
        "\n"
        "Discrepancies\n"
        "  output          sizes             max abs   verdict\n"
        "  ─────────────────────────────────────────────────────\n"
        "  logits          batch 2, seq 3   ✗ 0.0213   ✗ differs\n"
        "  present.0.key   batch 2, seq 3   ✗ 0.0213   ✗ differs\n"
        "  logits          batch 3, seq 7   ✗ 0.0213   ✗ differs\n"
        "  present.0.key   batch 3, seq 7   ✗ 0.0213   ✗ differs\n"
        "  logits          batch 1, seq 1   ✗ 0.0213   ✗ differs\n"
        "  present.0.key   batch 1, seq 1   ✗ 0.0213   ✗ differs\n"
        "\n"
        "Time\n"
        "  Time per step\n"
        "  capture                               ███████████████████████▌        4.871 s\n"
        "  convert                               ██████████████████████████████  6.204 s\n"
        "  com.microsoft.SkipLayerNormalization                                      0 s\n"
        "  wall clock\n"
        "\n"
        "Capture\n"
        "  Shapes\n"
        "    {0: DYNAMIC}\n"
        "      indented\n"
        "\n"
        "Problems\n"
        "  ✗ output logits differs; run `torchferry compare out`\n"
        "\n"
        "Next\n"
        "  → run it: `python run.py`\n"
    )


def test_sections_that_are_not_brief_stay_off(good):
    assert "Environment" not in plain(good)
    assert plain(good).startswith("✓ OK: the outputs are equal at 3 sizes\n")


def test_an_empty_report_is_its_verdict():
    assert plain(Report("t", True, "nothing to do")) == "✓ OK: nothing to do\n"


def test_plain_output_has_no_escape_codes_whatever_the_text_says(good):
    report = of(
        Source("", "\x1b[31mred\x1b[0m"),
        Table(("a\x1b[1m",), ((Cell("\x1b]0;t\x07", "bad"),),)),
        Facts((("\x9b1m", "\r\x00"),)),
    )
    for written in (plain(good), plain(report)):
        assert not any(ord(char) < 32 and char != "\n" for char in written)
    assert r"\x1b[31mred" in plain(report)


def test_a_terminal_has_colours_and_no_color_takes_them_away(good, failed):
    assert "\x1b[1;32m✓ OK" in terminal(good)
    assert "\x1b[1;31m✗ FAILED" in terminal(failed)
    assert "\x1b[32m" not in terminal(good, no_color=True)


def test_markup_in_a_text_is_text():
    report = Report("t", True, "a [bold]b[/bold] [/]", next_steps=("[red]x",))
    assert "a [bold]b[/bold] [/]" in plain(report)
    assert "[red]x" in plain(report)


@pytest.mark.parametrize("block", [Table(("name", "n"), ((NAME, 1),)), Facts(((NAME, NAME),))])
def test_long_names_are_never_cut_when_plain(block):
    assert NAME in plain(of(block))


def test_long_sentences_are_wrapped_at_100_columns_when_plain():
    sentence = "word " * 60
    report = Report(
        "t",
        False,
        sentence,
        (Section("S", (Table(("name", "why"), (("a", sentence),)), Facts((("k", sentence),)))),),
        problems=(sentence,),
    )
    assert max(map(len, plain(report).splitlines())) <= 100
    assert plain(report).count("word") == 240


@pytest.mark.parametrize("width", [20, 60])
def test_a_narrow_terminal_loses_no_character(width):
    table = Table(("name", "value"), ((NAME, 3), ("b", Cell("x" * 90, "bad"))))
    report = of(table, Bars("T", "s", ((NAME, 2.0),)), Source("", "q" * 150))
    written = terminal(report, width)
    assert written.count("x") == 90
    assert written.count("q") == 150
    assert "".join(written.split()).count("d") >= 60  # "deep." of NAME, twice
    assert "…" not in written


def test_next_steps_and_sources_stay_on_one_line_to_be_copied():
    command = "torchferry run " + "--option value " * 20 + "END"
    report = Report("t", True, "v", (Section("S", (Source("", command),)),), next_steps=(command,))
    for written in (plain(report), terminal(report, 60)):
        assert sum(command in line for line in written.splitlines()) == 2


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "cp1252"])
def test_other_encodings(failed, encoding):
    written = plain(failed, encoding)
    assert "FAILED: logits differs" in written
    assert "-----" in written
    assert "########" in written
    assert "x differs" in written


def test_what_an_encoding_lacks_is_spelled_out():
    report = Report("t", True, "a \u2192 b \N{MULTIPLICATION SIGN} \u2264 \u6f22 \U0001f6a2")
    assert plain(report, "ascii") == "OK: a -> b x <= \\u6f22 \\U0001f6a2\n"
    assert (
        plain(Report("t", True, "3 \u00b5s, 2 \u2264 3"), "latin-1") == "OK: 3 \u00b5s, 2 <= 3\n"
    )


def test_half_a_surrogate_pair_is_written_escaped():
    assert plain(Report("t", True, "name \udce9")) == "✓ OK: name \\udce9\n"


def test_numbers_nobody_has():
    table = Table(("a", "n"), (("x", math.nan), ("y", math.inf), ("z", 1)))
    bars = Bars("T", "s", (("a", math.nan), ("b", math.inf), ("c", -1.0)))
    lines = [line.split() for line in plain(of(table, bars)).splitlines()]
    assert ["x", "nan"] in lines
    assert ["y", "inf"] in lines
    assert ["a", "nan", "s"] in lines
    assert ["c", "-1", "s"] in lines


def test_numbers_are_right_aligned():
    lines = plain(of(Table(("op", "count"), (("Add", 5), ("Mul", 12345))))).splitlines()
    assert lines[-2].endswith("      5")
    assert lines[-1].endswith("  12345")
    assert len({len(line) for line in lines[-2:]}) == 1


def test_empty_blocks():
    written = plain(of(Table(("a",), ()), Bars("T", "s", ()), Facts(()), Source("", "")))
    assert written.count("none") == 2


def test_200_rows_are_all_there():
    table = Table(("i", "name"), tuple((i, f"row-{i}") for i in range(200)))
    written = plain(of(table))
    assert all(f"row-{i}\n" in written for i in range(200))


def test_tones_are_told_without_colours():
    table = Table(("a", "b"), ((Cell("1", "bad"), Cell("2", "warn")),))
    assert plain(of(table)).splitlines()[-1].split() == ["✗", "1", "!", "2"]
