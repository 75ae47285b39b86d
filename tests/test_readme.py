"""What the documents show is true.

- ```` ```python ```` blocks run, those of one file in order and in one namespace. A block under
  ``<!-- not run: reason -->`` is skipped, visibly.
- ```` ```console ```` blocks: after ``$ torchferry COMMAND --option`` the command and its options
  exist, after ``$ make TARGET`` the target does. What README.md shows below
  ``$ torchferry export zoo:…`` or ``$ make demo`` is compared with what the command prints:
  numbers and spacing may differ, words may not. A line ``...`` stands for any lines.
"""

from __future__ import annotations

import difflib
import os
import re
import shlex
import subprocess
import sys
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[1]
MAKEFILE = (ROOT / "Makefile").read_text("utf-8")
DOCUMENTS = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
NOT_RUN = re.compile(r"<!-- not run: (.+?) -->")


@dataclass(frozen=True)
class Block:
    """A fenced block: where it stands, its language, its text, and why it is not run."""

    file: str
    line: int
    language: str
    text: str
    not_run: str = ""

    @property
    def place(self) -> str:
        return f"{self.file}:{self.line}"


def blocks_of(text: str, file: str) -> list[Block]:
    """The fenced blocks of a Markdown text."""
    found: list[Block] = []
    inside: list[str] | None = None
    language, start, reason, before = "", 0, "", ""
    for number, line in enumerate(text.splitlines(), 1):
        if inside is None and line.startswith("```"):
            match = NOT_RUN.fullmatch(before.strip())
            inside, language, start = [], line[3:].strip(), number
            reason = match[1] if match else ""
        elif inside is not None and line.startswith("```"):
            found.append(Block(file, start, language, "\n".join(inside) + "\n", reason))
            inside, before = None, ""
        elif inside is not None:
            inside.append(line)
        elif line.strip():
            before = line
    if inside is not None:
        raise ValueError(f"{file}:{start}: the block is not closed")
    return found


def commands_of(block: Block) -> list[tuple[str, list[str]]]:
    """The ``$`` lines of a console block, each with the lines printed below it."""
    found: list[tuple[str, list[str]]] = []
    for line in block.text.splitlines():
        if line.startswith("$ "):
            found.append((line[2:], []))
        elif found and found[-1][0].endswith("\\"):
            found[-1] = (found[-1][0][:-1] + line.strip(), [])
        elif found:
            found[-1][1].append(line)
    return found


BLOCKS = [
    block
    for path in DOCUMENTS
    for block in blocks_of(path.read_text("utf-8"), path.relative_to(ROOT).as_posix())
]
PYTHON = [block for block in BLOCKS if block.language == "python"]
SHOWN = [
    pytest.param(command, output, id=f"{block.place}-{command[:40]}")
    for block in BLOCKS
    if block.language == "console" and not block.not_run
    for command, output in commands_of(block)
]


# Python ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("file", sorted({block.file for block in PYTHON}))
def test_python_blocks_run(file: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    module = ModuleType("document")  # classes of a document are found by their module
    monkeypatch.setitem(sys.modules, module.__name__, module)
    for block in PYTHON:
        if block.file == file and not block.not_run:
            # The blank lines make a traceback show the line of the document.
            code = compile("\n" * block.line + block.text, str(ROOT / file), "exec")
            exec(code, vars(module))  # noqa: S102  # the project's own documents


@pytest.mark.parametrize("block", [pytest.param(b, id=b.place) for b in PYTHON if b.not_run])
def test_python_block_not_run(block: Block) -> None:
    compile(block.text, block.place, "exec")
    pytest.skip(f"{block.place}: {block.not_run}")


# Commands --------------------------------------------------------------------------------------


def torchferry(arguments: tuple[str, ...], folder: Path) -> subprocess.CompletedProcess[str]:
    """Run the command line as it is run when its output goes to a file."""
    plain = {"HF_HUB_OFFLINE": "1", "NO_COLOR": "1", "TERM": "dumb", "COLUMNS": "200"}
    return subprocess.run(
        [sys.executable, "-m", "torchferry", *arguments],
        cwd=folder,
        env=os.environ | plain | {"PYTHONIOENCODING": "utf-8"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=300,
        check=False,
    )


@cache
def help_of(*command: str) -> str:
    done = torchferry((*command, "--help"), ROOT)
    assert done.returncode == 0, f"torchferry {' '.join(command)} --help: {done.stderr}"
    return done.stdout


def demo_arguments() -> tuple[str, ...]:
    """What `make demo` gives to torchferry, from its recipe."""
    recipe = re.search(r"^demo:.*\n\t\S*torchferry (.+)$", MAKEFILE, re.MULTILINE)
    assert recipe, "the demo recipe runs no torchferry command"
    return tuple(shlex.split(recipe[1]))


@pytest.mark.parametrize(("command", "output"), SHOWN)
def test_command_exists(command: str, output: list[str]) -> None:
    program, *arguments = shlex.split(command, comments=True)
    if program == "make":
        targets = [word for word in arguments if "=" not in word and not word.startswith("-")]
        missing = [t for t in targets if not re.search(rf"^{re.escape(t)}:", MAKEFILE, re.M)]
        assert not missing, f"the Makefile has no {missing}"
    elif program == "torchferry":
        command_words = [word for word in arguments[:1] if not word.startswith("-")]
        text = help_of(*command_words)
        options = [word.split("=")[0] for word in arguments if re.match(r"--?[a-z]", word)]
        missing = [o for o in options if not re.search(rf"(?<![\w-]){re.escape(o)}\b", text)]
        assert not missing, f"torchferry {' '.join(command_words)} has no {missing}"


# Output ----------------------------------------------------------------------------------------

NUMBER = re.compile(r"[-+]?\d[\d.,]*(?:e[-+]?\d+)?(?:\+cpu)?", re.IGNORECASE)
UNIT = re.compile(r"# ?(?:[µmnk]?s|min|[kKMG]?i?B|[kKMG]b)\b")


def loosely(text: str) -> list[str]:
    """The words of the lines: numbers, their units, rules of tables and spacing made equal."""
    lines = []
    for line in text.splitlines():
        plain = UNIT.sub("# unit", NUMBER.sub("#", line))
        plain = re.sub(r"[-─━═=_]{3,}", "---", plain)
        plain = re.sub(r"[█▉▊▋▌▍▎▏▇▆▅▄▃▂▁]+", "|", plain)
        plain = " ".join(plain.split())
        if plain and not set(plain) <= set("- "):
            lines.append(plain)
    return lines


def follows(shown: list[str], printed: list[str]) -> bool:
    """Whether the printed lines are those shown, where ``...`` stands for any number of lines."""
    pattern = "".join(r"(?:.*\n)*" if s == "..." else re.escape(s) + r"\n" for s in shown)
    return re.fullmatch(pattern, "".join(f"{line}\n" for line in printed)) is not None


@cache
def printed_by(arguments: tuple[str, ...], folder: Path) -> str:
    done = torchferry(arguments, folder)
    assert done.returncode in (0, 1), done.stderr
    return done.stdout.replace(f"{folder}/", "")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("readme")


@pytest.mark.parametrize(
    ("command", "output"),
    [p for p in SHOWN if p.id and p.id.startswith("README.md") and any(p.values[1])],
)
def test_output_is_what_is_printed(command: str, output: list[str], folder: Path) -> None:
    if command == "make demo":
        # make echoes the command it runs; what comes before it, pip's lines, is not shown.
        arguments = demo_arguments()
        output = [line for line in output if not line.startswith(".venv/bin/")]
    elif command.startswith("torchferry export zoo:"):
        arguments = tuple(shlex.split(command, comments=True)[1:])
    else:
        pytest.skip(f"only what an export from the zoo prints is compared, not: {command}")
    shown = loosely("\n".join(output))
    printed = loosely(printed_by(arguments, folder))
    difference = difflib.unified_diff(shown, printed, "README.md", "printed", lineterm="")
    assert follows(shown, printed), "\n".join(difference)


def test_first_screen_shows_both_commands_and_the_output_of_the_demo() -> None:
    screen = (ROOT / "README.md").read_text("utf-8").splitlines()[:70]
    blocks = blocks_of("\n".join([*screen, "```"] if screen.count("```") % 2 else screen), "")
    shown = dict(pair for b in blocks if b.language == "console" for pair in commands_of(b))
    assert {"make demo", "make test"} <= set(shown)
    assert len(loosely("\n".join(shown["make demo"]))) >= 5, "show what `make demo` prints"


# The reading itself ----------------------------------------------------------------------------


def test_blocks_carry_place_language_and_reason() -> None:
    text = (
        "a\n```python\nx\n```\n<!-- not run: needs a GPU -->\n\n```python\ny\n```\n```\nz\n```\n"
    )
    got = [(b.line, b.language, b.text, b.not_run) for b in blocks_of(text, "f")]
    assert got == [
        (2, "python", "x\n", ""),
        (7, "python", "y\n", "needs a GPU"),
        (10, "", "z\n", ""),
    ]


def test_an_open_block_is_an_error() -> None:
    with pytest.raises(ValueError, match="f:1: the block is not closed"):
        blocks_of("```python\nx\n", "f")


def test_commands_keep_their_output_and_join_continued_lines() -> None:
    block = Block("f", 1, "console", "$ torchferry a \\\n    --b\nout\n$ make c\n")
    assert commands_of(block) == [("torchferry a --b", ["out"]), ("make c", [])]


@pytest.mark.parametrize(
    ("shown", "printed", "same"),
    [
        ("abs 1e-07  3.2 s", "abs 2.5e-06 410 ms", True),
        ("torch 2.13.0", "torch 2.13.0+cpu", True),
        ("a ────── b", "a ──────────── b", True),
        ("verified 1, 2, 3", "specialised 1, 2, 3", False),
        ("first\n...\nlast", "first\nx\ny\nlast", True),
        ("first\n...\nlast", "first\nlast", True),
        ("first\nlast", "first\nx\nlast", False),
        ("...\nlast", "x\nlast\nmore", False),
        ("model.onnx 3 MB", "model.onnx 3 MB\nreport.html 1 MB", False),
    ],
)
def test_loosely_the_same(shown: str, printed: str, same: bool) -> None:
    assert follows(loosely(shown), loosely(printed)) is same
