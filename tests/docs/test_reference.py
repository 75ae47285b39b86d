"""What the pages of the site are written from: every name, message, rule and command is there."""

from __future__ import annotations

import inspect
import re
import zlib
from collections.abc import Iterator
from pathlib import Path

import commands
import files
import links
import operators
import patches
import pictures
import public_names
import pytest
import rst
import rules
from inventory import write_inventory
from PIL import Image
from shell import sh

import messages
import torchferry
from torchferry.capturer.patches import PATCHES
from torchferry.cli.main import app
from torchferry.optimizer.plan import known_rules
from torchferry.optimizer.rules import identity
from torchferry.optimizer.rules.onnxruntime import gelu

DOCS = Path(__file__).resolve().parents[2] / "docs"


def test_every_public_name_has_a_page_and_an_example_that_runs() -> None:
    assert public_names.undocumented() == []
    shown = [name for names in public_names.GROUPS.values() for name in names]
    assert sorted(shown) == sorted(torchferry.__all__)
    for group in public_names.GROUPS:
        assert f"generated:: api {group}" in (DOCS / f"reference/api/{group}.rst").read_text(
            "utf-8"
        )


def test_what_public_names_give_and_messages_name_has_an_entry() -> None:
    beside = [name for names in public_names.BESIDE.values() for name in names]
    assert all(inspect.getdoc(public_names.value_of(name)) for name in beside)
    assert public_names.full_name("Tolerance") == "torchferry.judge.Tolerance"
    assert public_names.full_name("export()") == "torchferry.export"
    assert public_names.full_name("nobody.knows") == ""
    said = (DOCS / "errors.toml").read_text("utf-8") + messages.TABLE.read_text("utf-8")
    named = set(re.findall(r"torchferry\.[a-z_]+\.[A-Za-z_.]*[A-Za-z]", said))
    assert {name for name in named if not public_names.full_name(name)} == set()
    assert ".. autoclass:: torchferry.comparer.Comparison\n" in public_names.api("faults")


def names_without_text() -> Iterator[str]:
    """Public names, methods and parameters that no docstring describes."""
    beside = [name for names in public_names.BESIDE.values() for name in names]
    for name in (*torchferry.__all__, *beside):
        value = public_names.value_of(name)
        text = inspect.getdoc(value) or ""
        if not text:
            yield name
        if inspect.isclass(value):
            for part, member in vars(value).items():
                function = getattr(member, "__func__", member)
                is_code = inspect.isfunction(function) or isinstance(member, property)
                if is_code and not part.startswith("_") and not inspect.getdoc(member):
                    yield f"{name}.{part}"
        elif inspect.isfunction(value):
            parameters = {*inspect.signature(value).parameters} - {"args", "kwargs"}
            yield from (f"{name}({one})" for one in parameters if f"{one}:" not in text)


def test_every_public_name_method_and_parameter_is_described() -> None:
    assert list(names_without_text()) == []


def test_an_entry_links_to_the_scripts_that_use_the_name() -> None:
    assert ".. autofunction:: torchferry.export" in public_names.api("walk")
    assert ":doc:`/auto_guides/g01_start`" in public_names.api("walk")
    assert "/auto_gallery/p10_caches" in " ".join(public_names.users_of("make_mamba_cache"))


def test_every_message_has_a_cause_and_a_cure() -> None:
    assert messages.unexplained() == []
    for kind in messages.kinds().values():
        assert set(kind) == {"title", "cause", "cure"}
        assert all(kind.values())
    text = messages.text()
    for code, _, _ in messages.rows():
        assert f".. message:: {code}\n" in text
    for letter in messages.CLASSES:
        assert f".. message:: TF-{letter}\n" in text


def test_a_message_has_its_own_cause_below_it_or_that_of_its_file() -> None:
    own = messages.kind_of("cli/commands/optimize", "TF-U23")
    assert own is not None
    assert own["title"] == "The command line"
    text = messages.text()
    entry = text[text.index(".. message:: TF-U23\n") :]
    said = f"   *Cause:* {own['cause']}\n\n   *Cure:* "
    assert entry.index(said) < entry.index(".. message:: TF-U24")
    assert text.count(own["cause"]) == 1
    shared = messages.kind_of("quantizer/quantize")
    assert shared is not None
    assert shared["cause"] not in text  # each message of the file has its own


def test_options_that_a_cure_names_are_there() -> None:
    listed = set(re.findall(r"``(--[a-z-]+)``", commands.text())) | {"--help"}
    for name, kind in messages.kinds().items():
        ours = re.sub(r"``(pip|hf|npm) [^`]*``", "", kind["cause"] + kind["cure"])
        assert set(re.findall(r"--[a-z][a-z-]+", ours)) <= listed, name


def test_every_explanation_is_of_a_file_that_is_there() -> None:
    package = DOCS.parent / "src/torchferry"
    codes = {code for code, _, _ in messages.rows()}
    named = [n for n in messages.kinds() if not n.startswith("classes/") and n not in codes]
    missing = [
        n for n in named if not (package / n).exists() and not (package / f"{n}.py").exists()
    ]
    assert missing == []


def test_the_longest_name_explains_a_message() -> None:
    assert messages.kind_of("capturer/state/lift") != messages.kind_of("capturer/capture")
    assert messages.kind_of("capturer/capture") == messages.kinds()["capturer"]
    assert messages.kind_of("nowhere/at_all") is None


def test_every_rule_is_shown_with_its_arrow_and_its_reasons() -> None:
    text = rules.text()
    for name in known_rules():
        assert name in text
    (dropout,) = [rule for rule in identity.RULES if rule.name == "Dropout"]
    assert len(rules.declines(type(dropout))) == 1
    (erf,) = [rule for rule in gelu.RULES if rule.name == "GeluErf"]
    assert rules.declines(type(erf)) == [
        "x is neither float32 nor float16"
    ]  # of a function it calls


def test_every_patch_is_shown() -> None:
    text = patches.text()
    assert all(patch.subject in text for patch in PATCHES)


def test_every_command_is_shown_with_its_options() -> None:
    text = commands.text()
    for command in app.registered_commands:
        assert f".. _command-{command.name}:" in text
    assert "``--check`` ``FILE``" in text
    assert "``--target`` ``onnx|onnxruntime``" in text
    assert "``--no-verify``" in text


def test_operators_stand_in_families_with_what_is_refused() -> None:
    text = operators.text()
    assert ".. _operators-activation:" in text
    assert "``relu``" in text
    reasons = operators.refusals(operators.FAMILIES["signal_window"])
    assert "the window's length depends on an input: make it constant" in reasons
    assert "without an ONNX form" in operators.coverage_text()


@pytest.mark.parametrize("part", ["metadata", "signature", "dumps", "report"])
def test_file_formats_are_read_from_the_code(part: str) -> None:
    text = files.text(part)
    assert {"metadata": "pkg.torchferry.signature", "signature": "``conditions``",
            "dumps": "torchferry.dump", "report": "torchferry.report/1"}[part] in text  # fmt: skip


def test_text_of_the_code_is_no_markup() -> None:
    assert rst.prose("a * b, x_ and |y|") == r"a \* b, x\_ and \|y\|"
    assert rst.code("a ``b``\n c") == "``a 'b' c``"
    assert rst.heading("T", "-", "t").splitlines() == [".. _t:", "", "T", "---", ""]


def test_an_inventory_is_what_intersphinx_reads(tmp_path: Path) -> None:
    (tmp_path / "lib.txt").write_text("# comment\nlib.f py:function api.html#$\n", "utf-8")
    path = Path(write_inventory(tmp_path / "lib.txt", tmp_path / "out"))
    head, body = path.read_bytes().split(b"zlib.\n")
    assert head.startswith(b"# Sphinx inventory version 2\n# Project: lib\n")
    assert zlib.decompress(body) == b"lib.f py:function 1 api.html#$ -\n"


def test_broken_links_anchors_and_foreign_loads_are_found(tmp_path: Path) -> None:
    (tmp_path / "index.html").write_text(
        '<h1 id="top">x</h1><a href="#top"></a><a href="b.html#here"></a><a href="b.html#no"></a>'
        '<a href="gone.html"></a><a href="https://example.org"></a>'
        '<img src="https://example.org/a">',
        "utf-8",
    )
    (tmp_path / "b.html").write_text('<p id="here"></p><script src="gone.js"></script>', "utf-8")
    assert sorted(links.check(tmp_path)) == [
        "b.html loads gone.js, which is not there",
        "index.html loads https://example.org/a from another site",
        "index.html: b.html#no: the page has no such anchor",
        "index.html: gone.html is not there",
    ]


def test_a_command_is_printed_with_its_output(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert sh("torchferry --version", tmp_path) == 0
    assert capsys.readouterr().out == (
        f"$ torchferry --version\ntorchferry {torchferry.__version__}\n"
    )
    with pytest.raises(ValueError, match="only torchferry is run"):
        sh("ls")


def test_the_first_guide_shows_every_picture_light_and_dark() -> None:
    guide = (DOCS / "guides/g01_start.py").read_text("utf-8")
    for picture in pictures.PICTURES:
        for scheme in pictures.SCHEMES:
            file = f"_static/report/{picture.name}-{scheme}.webp"
            assert f"/{file}\n#    :class: only-{scheme}\n#    :alt: " in guide
            image = Image.open(DOCS / file).convert("L")
            assert image.width == pictures.WIDTH * pictures.SCALE
            corner = image.getpixel((0, 0))
            assert isinstance(corner, int)
            assert (corner > 128) == (scheme == "light")
            assert (DOCS / file).stat().st_size < 40_000


def test_a_picture_shows_parts_of_a_page_without_empty_rows() -> None:
    page = pictures.only("<head></head><main></main>", "#a, #b")
    assert page.startswith("<head><style>main > :not(#a, #b) { display: none }</style></head>")
    image = Image.new("RGB", (60, 200), "white")
    image.paste("black", (10, 50, 20, 60))
    assert pictures.trimmed(image).size == (60, 10 + 2 * pictures.MARGIN)
