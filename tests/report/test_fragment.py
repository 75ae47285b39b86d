from __future__ import annotations

import re
from dataclasses import replace
from html.parser import HTMLParser

from torchferry.report import Report, Section, Source, Table
from torchferry.report.fragment import MAX_BYTES, render

VOID = {"br", "circle", "path", "rect", "line", "wbr"}


class Elements(HTMLParser):
    """Names of all elements, their text, and whether each is closed."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.names: list[str] = []
        self.open: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.texts: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.names.append(tag)
        self.attributes += attrs
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        if tag not in VOID:
            assert self.open.pop() == tag

    def handle_data(self, data):
        if not self.open or self.open[-1] != "style":
            self.texts.append(data)


def test_it_is_one_element_with_nothing_from_elsewhere(failed: Report):
    text = render(failed)
    found = Elements(text)
    assert found.open == []
    assert text.strip().startswith('<div class="tf-report"')
    assert not {"script", "link", "img", "iframe", "body", "html", "head"} & set(found.names)
    assert "http" not in text.replace("http://www.w3.org/2000/svg", "")
    assert "@import" not in text
    assert "url(" not in text


def test_styles_are_of_this_element_only(good: Report):
    style = re.search(r"<style>(.*?)</style>", render(good), re.DOTALL)[1]
    rules = [line for line in style.splitlines() if line.strip()]
    selectors = [part.strip() for rule in rules for part in rule.split("{")[0].split(",")]
    assert all(selector.startswith(".tf-report") for selector in selectors)
    # Neither a light nor a dark ground: text and ground are those of the notebook.
    colors = re.findall(r"(?<!-)color: ([^;]+);", style)
    assert set(colors) == {"inherit", "#2a9461", "#e0483e", "#b9770e"}
    assert all(contrast(color, ground) > 3 for color in set(colors) - {"inherit"}
               for ground in ("#ffffff", "#111111"))  # fmt: skip


def contrast(one: str, other: str) -> float:
    """https://www.w3.org/TR/WCAG21/#dfn-contrast-ratio"""
    first, second = sorted((luminance(one), luminance(other)), reverse=True)
    return (first + 0.05) / (second + 0.05)


def luminance(color: str) -> float:
    parts = [int(color[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [p / 12.92 if p <= 0.03928 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
    return sum(weight * p for weight, p in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


def test_it_shows_what_the_terminal_shows(failed: Report):
    text = " ".join(Elements(render(failed)).texts)
    for part in ("✗ FAILED", failed.verdict, "Discrepancies", "batch 1, seq 1", "✗ 0.0213",
                 "verified", "Time per step", "{0: DYNAMIC}", "Problems", "run it:"):  # fmt: skip
        assert part in text
    assert "Environment" not in text  # which only the page has


def test_text_is_text(hostile: Report):
    text = render(hostile)
    assert "<script" not in text
    assert "script" not in Elements(text).names
    assert not any(name.startswith("on") for name, _ in Elements(text).attributes)


def test_it_stays_small(good: Report):
    rows = tuple((f"a value with a long name {n}", n, "x" * 50) for n in range(5000))
    lines = Source("a log", "\n".join("y" * 80 for _ in range(5000)))
    long = replace(good, sections=(Section("All", (Table(("value", "n", "text"), rows), lines)),))
    text = render(long)
    assert len(text.encode()) <= MAX_BYTES
    assert re.search(r"\d+ more rows are left out", text)
    assert Elements(text).open == []


def test_the_smallest_report():
    assert "✓ OK</span> v" in render(Report("t", True, "v"))
