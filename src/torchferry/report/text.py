"""A report on a terminal, or as plain text when the output is not one."""

from __future__ import annotations

import io
import re
import sys
from collections.abc import Iterable
from typing import Literal

from rich.box import SIMPLE, Box
from rich.cells import cell_len
from rich.console import Console, RenderableType
from rich.segment import Segment, Segments
from rich.table import Table as Grid
from rich.text import Text

from torchferry.report.figure import bar_lengths
from torchferry.report.model import Bars, Block, Cell, Facts, Report, Source, Table
from torchferry.report.number import as_cell, measure_text, numeric_columns

__all__ = ["plain", "render"]

_PLAIN_WIDTH = 100  # columns when the output is not a terminal: the same in every log
_BAR_WIDTH = 30
_STYLES = {"good": "green", "bad": "bold red", "warn": "yellow", "muted": "dim"}
_VERDICTS = {True: ("✓ ", "OK", "bold green"), False: ("✗ ", "FAILED", "bold red")}
_MARKS = {"bad": "✗ ", "warn": "! "}  # so that a tone is not lost without colours
_EIGHTHS = " ▏▎▍▌▋▊▉"
_ASCII_SIMPLE = Box("    \n    \n -- \n    \n    \n -- \n    \n    \n", ascii=True)
_ASCII = str.maketrans(
    {"✓": "v", "✗": "x", "→": "->", "←": "<-", "≤": "<=", "≥": ">=", "≠": "!=", "…": "..."}
    | {"\N{MULTIPLICATION SIGN}": "x", "\N{EN DASH}": "-", "—": "-", "µ": "u", "·": "."}
    | dict.fromkeys("\N{LEFT SINGLE QUOTATION MARK}\N{RIGHT SINGLE QUOTATION MARK}", "'")
    | dict.fromkeys("“”", '"')
)
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


def render(report: Report, console: Console) -> None:
    """Print the verdict, the brief sections, the problems, and last what to do next.

    When ``console`` is not a terminal: no escape codes, 100 columns, and lines longer than that
    rather than broken words. On a terminal cells are folded to its width. Nothing is ever cut.
    Characters the output's encoding does not have are replaced by ASCII ones.
    """
    _Printer(console).report(report)


def plain(report: Report) -> str:
    """The text for a log: what `render` prints where the output is no terminal.

    Characters that stdout cannot encode are replaced, so that it can be printed.
    """
    stream = _Lines(getattr(sys.stdout, "encoding", None) or "utf-8")
    console = Console(
        file=stream, width=_PLAIN_WIDTH, force_terminal=False, color_system=None, highlight=False,
        force_jupyter=False, legacy_windows=False,
    )  # fmt: skip
    render(report, console)
    return stream.getvalue().rstrip("\n")


class _Lines(io.StringIO):
    """Text that is kept, for an output of some encoding."""

    def __init__(self, encoding: str) -> None:
        super().__init__()
        self._encoding = encoding

    @property
    def encoding(self) -> str:  # type: ignore[override]  # plain text has none
        return self._encoding


class _Printer:
    def __init__(self, console: Console) -> None:
        self.console = console
        self.terminal = console.is_terminal
        self.width = console.width if self.terminal else _PLAIN_WIDTH
        self.unicode = not console.options.ascii_only

    def report(self, report: Report) -> None:
        mark, word, style = _VERDICTS[report.ok]
        self.prose(f"{mark if self.unicode else ''}{word}: ", report.verdict, style)
        for section in report.sections:
            if section.brief:
                self.heading(section.title)
                for index, block in enumerate(section.blocks):
                    if index:
                        self.line("")
                    self.block(block)
        if report.problems:
            self.heading("Problems")
            for problem in report.problems:
                self.prose("  ✗ ", problem, "red")
        if report.next_steps:
            self.heading("Next")
            for step in report.next_steps:
                self.line(f"  → {step}")

    def heading(self, title: str) -> None:
        self.line("")
        self.line(title, "bold")

    def block(self, block: Block) -> None:
        if block.title:
            self.line(f"  {block.title}", "italic")
        match block:
            case Facts():
                self.facts(block)
            case Table():
                self.table(block)
            case Bars():
                self.bars(block)
            case Source():
                for line in block.text.splitlines():
                    self.line(f"    {line}")
        if isinstance(block, Table | Bars) and block.note:
            self.prose("  ", block.note, "dim")

    def facts(self, facts: Facts) -> None:
        grid = self.grid((False, False))
        for label, value in facts.pairs:
            grid.add_row(self.text(label, "dim"), self.cell(as_cell(value)))
        self.put(self.hold_words(grid))

    def table(self, table: Table) -> None:
        if not table.rows:
            self.line("  none", "dim")
            return
        box = SIMPLE if self.unicode else _ASCII_SIMPLE
        grid = Grid(box=box, show_edge=False, pad_edge=False, header_style="bold")
        headings = table.columns
        if self.terminal and sum(cell_len(name) + 2 for name in headings) > self.width - 2:
            # Rich would break them anywhere.
            headings = tuple(name.replace("_", "_\n") for name in headings)
        for name, numeric in zip(headings, numeric_columns(table), strict=True):
            grid.add_column(
                Text("\n").join(self.text(part) for part in name.split("\n")),
                justify=_side(numeric),
                overflow="fold",
            )
        for row in table.rows:
            grid.add_row(*(self.cell(as_cell(value)) for value in row))
        self.put(self.hold_words(grid))

    def bars(self, bars: Bars) -> None:
        if not bars.items:
            self.line("  none", "dim")
            return
        grid = self.grid((False, False, True))
        for (label, value), length in zip(bars.items, bar_lengths(bars), strict=True):
            bar = Text(_bar(length, self.unicode), style="blue", no_wrap=True)
            grid.add_row(self.text(label), bar, self.text(measure_text(value, bars.unit)))
        self.put(self.hold_words(grid))

    def grid(self, numeric: Iterable[bool]) -> Grid:
        grid = Grid(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
        for right in numeric:
            grid.add_column(justify=_side(right), overflow="fold")
        return grid

    def hold_words(self, grid: Grid) -> Grid:
        """Keep columns wide enough for words: all of them when plain, short ones on a terminal."""
        for column in grid.columns:
            texts = [cell for cell in (column.header, *column.cells) if isinstance(cell, Text)]
            longest = _longest(*texts)
            column.min_width = min(longest, 12) if self.terminal else longest
        return grid

    def cell(self, cell: Cell) -> Text:
        mark = _MARKS.get(cell.tone or "", "")
        return self.text(mark + cell.text, _STYLES.get(cell.tone or "", ""))

    def text(self, text: str, style: str = "") -> Text:
        return Text(_printable(text, self.console.encoding), style=style)

    def prose(self, first: str, text: str, style: str) -> None:
        """Print sentences, wrapped between words under the end of ``first``."""
        lead, sentences = self.text(first, style), self.text(text, style)
        grid = Grid.grid()
        grid.add_column(width=cell_len(lead.plain), no_wrap=True)
        grid.add_column(overflow="fold", min_width=1 if self.terminal else _longest(sentences))
        grid.add_row(lead, sentences)
        self.put(grid, indent=0)

    def line(self, text: str, style: str = "") -> None:
        """Print one line whole; a terminal folds it itself, so that it can be copied."""
        self.console.print(self.text(text, style), soft_wrap=True)

    def put(self, renderable: RenderableType, indent: int = 2) -> None:
        # Rich's own indent and print would crop a line wider than the console.
        options = self.console.options.update(max_width=max(self.width - indent, 1))
        for line in Segment.split_lines(self.console.render(renderable, options)):
            whole = [Segment(" " * indent), *line]
            self.console.print(Segments([*_trimmed(whole), Segment.line()]), soft_wrap=True)


def _bar(length: float, unicode: bool) -> str:
    if not unicode:
        return "#" * max(round(length * _BAR_WIDTH), int(length > 0))
    eighths = max(round(length * _BAR_WIDTH * 8), int(length > 0))
    return "█" * (eighths // 8) + _EIGHTHS[eighths % 8].strip()


def _printable(text: str, encoding: str) -> str:
    """Replace control characters, and what the output's encoding cannot say."""
    text = text.replace("\r\n", "\n")
    text = _CONTROL.sub(lambda found: f"\\x{ord(found.group()):02x}", text)
    return "".join(_in_encoding(char, encoding) for char in text)


def _in_encoding(char: str, encoding: str) -> str:
    try:
        char.encode(encoding)
    except UnicodeEncodeError:
        return char.translate(_ASCII).encode(encoding, "backslashreplace").decode(encoding)
    return char


def _longest(*texts: Text) -> int:
    """Columns of the longest word."""
    words = (word for text in texts for word in text.plain.split())
    return max(map(cell_len, words), default=1)


def _side(numeric: bool) -> Literal["left", "right"]:
    return "right" if numeric else "left"


def _trimmed(line: list[Segment]) -> list[Segment]:
    while line and not line[-1].text.strip(" "):
        line = line[:-1]
    if line:
        line = [*line[:-1], line[-1]._replace(text=line[-1].text.rstrip(" "))]
    return line
