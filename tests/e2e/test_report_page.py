"""The page of a real export, opened in a real browser."""

import pytest

from torchferry.cli.main import app

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")


@pytest.fixture(scope="module")
def page_file(tmp_path_factory):
    out = tmp_path_factory.mktemp("page") / "out"
    with pytest.raises(SystemExit) as stop:
        app(["export", "zoo:tiny-llm", "-o", str(out)])
    assert stop.value.code == 0
    return out / "report.html"


def test_shows_the_verdict_and_asks_for_nothing(browser, page_file):
    page = browser.open(page_file)
    verdict = browser.evaluate(page_file, "document.getElementById('verdict').innerText")
    assert "OK" in verdict
    assert "3 outputs equal PyTorch's" in verdict
    assert browser.evaluate(page_file, "document.body.dataset.verdict") == "ok"
    assert page.requests == [page_file.as_uri()]
    assert page.console_errors == []


def test_holds_what_a_stranger_needs(browser, page_file):
    text = browser.evaluate(page_file, "document.body.innerText")
    for name in ("batch_size", "sequence_length", "past_sequence_length"):
        assert name in text
    for heading in ("Dynamic dimensions", "Outputs against PyTorch", "Inputs", "Operators",
                    "Time", "Peak resident memory", "Environment"):  # fmt: skip
        assert heading in text
    assert "MatMul" in text
    assert browser.evaluate(page_file, "document.querySelectorAll('svg').length") >= 3
    assert page_file.stat().st_size <= 300_000
    # Nothing is wider than the window, on a telephone too.
    for width in (400, 1280):
        script = "document.documentElement.scrollWidth"
        assert browser.evaluate(page_file, script, width=width, height=900) <= width
