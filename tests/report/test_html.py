from __future__ import annotations

import math
from html.parser import HTMLParser

import pytest

from torchferry.errors import UsageError
from torchferry.report import Bars, Cell, Facts, Report, Section, Source, Table
from torchferry.report.html import MAX_BYTES, dump, render


class Tags(HTMLParser):
    """All tags with their attributes, and all text."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.text = ""
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag not in ("meta", "link", "br", "wbr"):
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text += data

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attrs for name, attrs in self.tags if name == tag]


def of(*blocks: object) -> Report:
    return Report("t", True, "v", (Section("S", blocks),))


@pytest.mark.parametrize("outcome", ["good", "failed"])
def test_the_verdict_is_told_to_people_and_programs(request, outcome):
    report = request.getfixturevalue(outcome)
    page = Tags(render(report))
    word = "OK" if report.ok else "FAILED"
    assert page.all("body") == [{"data-verdict": word.lower()}]
    assert page.all("html") == [{"lang": "en"}]
    assert [attrs["id"] for _, attrs in page.tags if attrs.get("id") == "verdict"] == ["verdict"]
    assert f"{word} {report.verdict}" in page.text


def test_everything_is_shown_in_order(failed):
    page = Tags(render(failed))
    assert not page.open
    page_text = page.text[page.text.index("FAILED logits") :]
    places = [page_text.index(text) for text in (failed.verdict, "output logits differs")]
    places += [page_text.rindex(section.title) for section in failed.sections]
    places.append(page_text.rindex("run it"))
    assert places == sorted(places)
    ids = {attrs["id"] for _, attrs in page.tags if "id" in attrs}
    links = [attrs["href"].removeprefix("#") for attrs in page.all("a")]
    assert links == [f"section-{n}" for n in range(1, 6)] + ["next"]
    assert ids >= set(links)


def test_nothing_is_loaded_or_run(hostile, good):
    for report in (hostile, good):
        page = Tags(render(report))
        assert not page.all("script")
        assert page.all("link") == [{"rel": "icon", "href": "data:,"}]
        assert {"default-src 'none'"} <= {
            (attrs.get("content") or "").split(";")[0] for attrs in page.all("meta")
        }
        names = {name for _, attrs in page.tags for name in attrs}
        assert not {name for name in names if name.startswith("on")} | names & {"src", "srcset"}


def test_every_text_is_escaped(hostile):
    page = render(hostile)
    assert "<script" not in page
    # Every field of the report, `data` aside: lost text would be as bad as live text.
    assert Tags(page).text.count("<script>console.error('x')</script>&\"'") == 29
    assert not Tags(page).open


def test_code_between_backticks():
    page = render(Report("t", False, "v", problems=("use `a < b` or ``; a ` alone",)))
    assert "use <code>a &lt; b</code> or ``; a ` alone" in page


def test_tones_and_numbers():
    page = Tags(render(of(Table(("n", "v"), (("a", Cell("0.5", "bad")), ("b", math.nan))))))
    assert page.all("th") == [{"scope": "col"}, {"scope": "col", "class": "num"}]
    assert [attrs.get("class") for attrs in page.all("td")] == [None, "num", None, "num"]
    assert {"class": "bad"} in page.all("span")
    assert "nan" in page.text


def test_an_empty_report_is_a_page():
    page = Tags(render(Report("", True, "")))
    assert not page.open
    assert not page.all("section")
    assert not page.all("nav")


def test_empty_blocks_say_so():
    blocks = (Table(("a",), ()), Bars("B", "s", ()), Facts(()), Source("", ""))
    page = Tags(render(of(*blocks)))
    assert page.text.count("none\n") >= 2
    assert not page.open


def test_long_names_and_unicode_stay_whole(tmp_path):
    name = "layer." * 100 + "poids_\u00e9\u6f22\U0001f6a2"
    report = of(Table((name,), ((name,),)), Facts(((name, name),)), Source(name, name))
    dump(report, tmp_path / "r.html")
    assert (tmp_path / "r.html").read_text(encoding="utf-8").count(name) >= 5


def test_half_a_surrogate_pair_does_not_break_the_page(tmp_path):
    dump(Report("t", True, "name \udce9"), tmp_path / "r.html")
    assert "name \\udce9" in (tmp_path / "r.html").read_text(encoding="utf-8")


def test_200_rows_fit_whole():
    rows = tuple((f"present.{i}.key", f"batch {i}", i * 1e-7, "equal") for i in range(200))
    page = render(of(Table(("output", "size", "max abs", "verdict"), rows)))
    assert len(page.encode()) <= MAX_BYTES
    assert page.count("<td>present.") == 200
    assert "left out" not in page


def test_a_page_is_kept_small_and_says_what_is_left_out():
    rows = tuple((f"value_{i}", "x" * 40, i) for i in range(20_000))
    bars = tuple((f"op{i}", float(i)) for i in range(5_000))
    source = "\n".join(f"line {i}" for i in range(50_000))
    page = render(
        of(Table(("a", "b", "c"), rows, note="N."), Bars("B", "", bars), Source("", source))
    )
    assert len(page.encode()) <= MAX_BYTES
    shown = page.count("<td>value_")
    assert 0 < shown < 20_000
    assert (
        f"{20_000 - shown} more rows are left out of this page; the JSON report has all. N."
        in page
    )
    assert "more bars are left out" in page
    assert "more lines are left out" in page


def test_a_failed_dump_leaves_the_old_page(good, tmp_path):
    with pytest.raises(UsageError, match="cannot write"):
        dump(good, tmp_path / "none" / "r.html")
    dump(good, tmp_path / "r.html")
    assert [path.name for path in tmp_path.iterdir()] == ["r.html"]


def test_a_long_name_in_a_table_may_end_its_line_between_its_parts() -> None:
    name = "model.layers.0.post_attention<b>_norm"
    table = Table(("layer", "why"), ((name, "a sentence that is long, but has blanks"),))
    page = render(Report("t", True, "v", (Section("S", (table,)),)))
    cell = "model.<wbr>layers.0.<wbr>post_<wbr>attention&lt;b&gt;_<wbr>norm"
    assert f'<td class="long name">{cell}</td>' in page
    assert '<td class="long">a sentence that is long, but has blanks</td>' in page
