"""The page in a real browser: it says what it should, loads nothing, complains of nothing.

The browser would see it if a page did load or complain: the tests at the end show that.
"""

from __future__ import annotations

import pytest

from torchferry.report import Bars, Report, Section, Table
from torchferry.report import html as report_html

# Boxes of all text of a picture: [left, top, right, bottom], and that of the card around it.
BOXES = """(() => {
  const box = element => {
    const {left, top, right, bottom} = element.getBoundingClientRect();
    return [left, top, right, bottom];
  };
  const svg = document.querySelector("svg.bars");
  return {card: box(svg.closest("section")), texts: [...svg.querySelectorAll("tspan, text")]
    .filter(e => !e.querySelector("tspan")).map(box)};
})()"""


@pytest.mark.parametrize("outcome", ["good", "failed"])
def test_the_page_shows_the_verdict_and_loads_nothing(request, browser, tmp_path, outcome):
    report = request.getfixturevalue(outcome)
    file = tmp_path / "report.html"
    report_html.dump(report, file)
    page = browser.open(file)
    assert page.requests == [file.as_uri()]
    assert page.console_errors == []
    assert f'data-verdict="{"ok" if report.ok else "failed"}"' in page.dom
    shown = browser.evaluate(file, "document.querySelector('#verdict').innerText")
    assert shown.split("\n") == ["OK" if report.ok else "FAILED", report.verdict]


def test_a_hostile_report_runs_nothing(browser, hostile, tmp_path):
    file = tmp_path / "report.html"
    report_html.dump(hostile, file)
    page = browser.open(file)
    assert page.requests == [file.as_uri()]
    assert page.console_errors == []


@pytest.mark.parametrize("width", [400, 1400])
def test_the_page_fits_its_window(browser, tmp_path, width):
    name = "model.layers." * 20
    rows = tuple((name, "a sentence of some length " * 5, *range(12)) for _ in range(200))
    columns = ("name", "why", *(f"column_{i}" for i in range(12)))
    report = Report(name, False, name, (Section(name, (Table(columns, rows),)),), (name,), (name,))
    file = tmp_path / "report.html"
    report_html.dump(report, file)
    assert browser.evaluate(file, "document.documentElement.scrollWidth", width=width) == width
    # The table scrolls in its own box, under a head that stays.
    heads = browser.evaluate(
        file,
        """(() => {
          const box = document.querySelector(".scroll"), head = box.querySelector("th");
          const tops = [head.getBoundingClientRect().top];
          box.scrollTop = 500;
          return [...tops, head.getBoundingClientRect().top, box.scrollTop];
        })()""",
        width=width,
    )
    assert heads[0] == heads[1]
    assert heads[2] == 500


@pytest.mark.parametrize("width", [400, 1400])
def test_text_of_bars_is_neither_cut_nor_overlapping(browser, tmp_path, width):
    items = (
        ("M" * 60, 123456789.0),
        ("com.microsoft.SkipSimplifiedLayerNormalization", 123456.0),
        ("\u6f22" * 30, 1e-9),
        ("W" * 26, 99999999.0),
        ("a", 0.0),
    )
    report = Report("t", True, "v", (Section("S", (Bars("B", "MiB/s", items),)),))
    file = tmp_path / "report.html"
    report_html.dump(report, file)
    boxes = browser.evaluate(file, BOXES, width=width)
    texts = boxes["texts"]
    assert len(texts) > 2 * len(items)
    left, top, right, bottom = boxes["card"]
    for box in texts:
        assert left <= box[0] < box[2] <= right, box
        assert top <= box[1] < box[3] <= bottom, box
    for index, one in enumerate(texts):
        for other in texts[index + 1 :]:
            apart = one[2] <= other[0] or other[2] <= one[0]
            assert apart or one[3] <= other[1] + 1 or other[3] <= one[1] + 1, (one, other)


def test_light_and_dark(browser, good, tmp_path):
    file = tmp_path / "report.html"
    report_html.dump(good, file)
    for dark in (False, True):
        browser.screenshot(file, tmp_path / f"{dark}.png", 400, 300, dark=dark)
    light, night = ((tmp_path / f"{dark}.png").read_bytes() for dark in (False, True))
    assert light.startswith(b"\x89PNG")
    assert light != night


@pytest.fixture
def leaky(tmp_path):
    """Write a page with a piece of HTML put into it, without the policy that would block it."""

    def write(inserted: str, *, policy: bool = False):
        page = report_html.render(Report("t", True, "v"))
        start = page.index("<meta http-equiv")
        if not policy:
            page = page[:start] + page[page.index("\n", start) :]
        file = tmp_path / "leaky.html"
        file.write_text(page.replace("</main>", f"{inserted}</main>"))
        return file

    return write


@pytest.mark.parametrize(
    "inserted",
    [
        '<img src="http://example.org/x.png">',
        '<link rel="stylesheet" href="http://example.org/x.css">',
        '<script src="http://example.org/x.js"></script>',
        "<script>fetch('http://example.org/x')</script>",
        "<style>body { background: url(http://example.org/x.png) }</style>",
    ],
)
def test_a_request_would_be_seen(browser, leaky, inserted):
    page = browser.open(leaky(inserted))
    assert any(url.startswith("http://example.org/x") for url in page.requests)


@pytest.mark.parametrize(
    ("script", "said"),
    [
        ("console.error('bad', 1)", "bad 1"),
        ("throw new Error('broken')", "Error: broken"),
        ("undefined_name", "ReferenceError"),
        ("Promise.reject(new Error('later'))", "Error: later"),
    ],
)
def test_a_console_error_would_be_seen(browser, leaky, script, said):
    page = browser.open(leaky(f"<script>{script}</script>"))
    assert any(said in error for error in page.console_errors)


def test_the_policy_blocks_what_gets_into_a_page(browser, leaky):
    inserted = '<img src="http://example.org/x.png"><script>document.title = "run"</script>'
    for policy in (True, False):
        page = browser.open(leaky(inserted, policy=policy))
        assert ("<title>run" in page.dom) is not policy
        blocked = [error for error in page.console_errors if "Content Security Policy" in error]
        assert len(blocked) == (2 if policy else 0)


def test_a_script_that_fails_is_told(browser, leaky):
    with pytest.raises(RuntimeError, match="failed in the page"):
        browser.evaluate(leaky(""), "nothing.here")


def test_a_missing_page_is_told(browser, tmp_path):
    with pytest.raises(RuntimeError, match="cannot open"):
        browser.open(tmp_path / "none.html")
