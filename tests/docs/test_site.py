"""The site, where it is built: `make docs`."""

from __future__ import annotations

from pathlib import Path

import links
import pytest

SITE = Path(__file__).resolve().parents[2] / "docs/_build/html"


@pytest.mark.skipif(not (SITE / "index.html").is_file(), reason="`make docs` builds the site")
def test_links_anchors_and_sizes_are_good() -> None:
    assert list(links.check(SITE)) == []


def test_figures_are_drawn_from_the_results(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    figures = pytest.importorskip("figures")
    monkeypatch.setattr(figures, "PICTURES", tmp_path)
    for name in (
        "runtime",
        "compile",
        "convert",
        "optimize",
        "planted",
        "sweep",
        "field",
        "start",
    ):
        assert f"/generated/{name}.svg" in figures.text(name)
        assert (tmp_path / f"{name}.svg").stat().st_size > 2000
    assert "torchferry int4" in figures.text("deploy")
    lines = (figures.RESULTS / "RESULTS.md").read_text("utf-8").splitlines()
    missed = [line for line in lines if "MISSED: " in line or "FAIL: " in line]
    table = figures.text("missed")
    for line in missed:
        case = line.removeprefix("- MISSED: ").split(": ")[0].split("|")
        assert case[min(1, len(case) - 1)].strip() in table
    assert ("torchao int8, ours" in table) == any("torchao int8, ours" in line for line in lines
                                                  if line.startswith("Bars missed: "))  # fmt: skip
    assert "our best" in figures.text("losses") or "In no case" in figures.text("losses")


def test_every_page_of_the_extension_is_used() -> None:
    pages = pytest.importorskip("site_pages", reason="Sphinx is not installed")
    texts = [path.read_text("utf-8") for path in SITE.parents[1].rglob("*.rst")]
    unused = {name for name in pages.PAGES if not any(f"generated:: {name}" in t for t in texts)}
    assert unused == set()
