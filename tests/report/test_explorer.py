"""What one looks around in: how it is packed, and how it behaves in a real browser."""

from __future__ import annotations

import base64
import json
import zlib
from typing import Any

import pytest

from torchferry.report import Report, Section, html, text
from torchferry.report import json as report_json
from torchferry.report.explorer import (
    Explorer,
    Item,
    Spread,
    explorer_payload,
    script,
    script_hash,
    smaller,
)

BAD = 37
HOSTILE = "</script><script>document.title='run'</script><img src=x onerror=alert(1)>"


def item(place: int, **changes: Any) -> Item:
    values: dict[str, Any] = {
        "name": f"node_{place}",
        "kind": ("MatMul", "Add", "Softmax")[place % 3],
        "path": f"layers.{place // 10}.{('mlp', 'norm')[place % 2]}",
        "tone": "bad" if place == BAD else None,
        "heat": min(place / 100, 1.0),
        "reads": tuple(p for p in (place - 1, place - 7) if p >= 0),
        "facts": (("line", f"model.py:{place}"), ("value", f"v{place}")),
        "sides": (("mean", "0.5", f"{place}"),),
        "spread": Spread(-1.0, 1.0, (1, 2, 3), (1, 2, 4) if place == BAD else (1, 2, 3)),
    }
    return Item(**(values | changes))


def explorer(count: int = 60, **changes: Any) -> Explorer:
    legend = ((None, "difference"), ("bad", "beyond tolerance"))
    items = tuple(item(place, **changes) for place in range(count))
    return Explorer("", f"{count} nodes", items, ("reference", "ONNX"), BAD, legend)


def report(block: Explorer) -> Report:
    return Report("compare", False, "v", (Section("Graph", (block,), brief=False),))


def unpacked(block: Explorer) -> dict[str, Any]:
    data = zlib.decompress(base64.b64decode(explorer_payload(block)), -zlib.MAX_WBITS)
    return json.loads(data)


# What is in the page --------------------------------------------------------------------------


def test_items_are_packed_by_column() -> None:
    data = unpacked(explorer(12))
    assert data["names"][10:] == ["node_10", "node_11"]
    assert [data["kinds"][k] for k in data["kind"][:4]] == ["MatMul", "Add", "Softmax", "MatMul"]
    assert data["reads"][9] == [1, 7]  # how far back
    assert data["spread"][0] == [-1.0, 1.0, "coz"[0] + "oz", "="]
    assert (data["heads"], data["first"]) == (["reference", "ONNX"], BAD)
    assert unpacked(Explorer("", "", (Item("a", "b", "c"),)))["spread"] == [0]


def test_what_is_there_at_all_has_a_height() -> None:
    spread = Spread(0.0, 1.0, (0, 1, 100_000), (0, 0, 7))
    data = unpacked(Explorer("", "", (Item("a", "b", "", spread=spread),)))
    assert data["spread"] == [[0.0, 1.0, "01z", "001"]]


def test_the_page_runs_this_script_and_no_other() -> None:
    page = html.render(report(explorer()))
    assert f"script-src '{script_hash()}'" in page
    assert page.count("<script>") == 1
    assert f"<script>{script()}</script>" in page
    plain = html.render(Report("t", True, "v"))
    assert "<script" not in plain
    assert "script-src" not in plain


def test_other_renderers_say_where_it_is() -> None:
    block = report_json.to_json(report(explorer()))["sections"][0]["blocks"][0]
    assert block == {"kind": "explorer", "title": "", "text": "60 nodes"}
    assert text is not None


@pytest.mark.parametrize(("rows", "count"), [(1000, 3000), (300, 3000), (100, 3000), (30, 1800)])
def test_a_smaller_page_keeps_what_is_near_the_first(rows: int, count: int) -> None:
    block = explorer(3000)
    less = smaller(block, rows)
    assert len(less.items) == count
    assert less.items[less.first] == block.items[BAD]
    assert less.items[-1].spread is None
    assert less.items[-1].sides == ()
    assert ("value" in dict(less.items[-1].facts)) is (rows >= 1000)
    assert less.note
    assert all(p >= 0 and place > p for place, i in enumerate(less.items) for p in i.reads)


def test_a_page_of_very_many_nodes_stays_small() -> None:
    page = html.render(report(explorer(9000)))
    assert len(page) <= html.MAX_BYTES


# In a browser ---------------------------------------------------------------------------------


@pytest.fixture
def opened(browser: Any, tmp_path: Any) -> Any:
    """Open a page, and give what evaluates scripts in it once the graph is there."""
    tabs = []

    def opening(block: Explorer, width: int = 1280) -> Any:
        file = tmp_path / "page.html"
        html.dump(report(block), file)
        tab = browser._load(file, width, 900, dark=False)
        tabs.append(tab)

        def evaluate(expression: str) -> Any:
            code = f"""(async () => {{
              const root = document.querySelector(".look");
              while (!root.dataset.ready) await new Promise(done => setTimeout(done, 10));
              const found = {expression};
              return found;
            }})()"""
            answer = browser._call(
                "Runtime.evaluate", tab["sessionId"], expression=code, returnByValue=True,
                awaitPromise=True,
            )  # fmt: skip
            assert "exceptionDetails" not in answer, answer
            return answer["result"].get("value")

        return evaluate

    yield opening
    for tab in tabs:
        browser._close(tab)


ABOUT = "root.querySelector('.about').innerText"
SHOWN = "[...root.querySelectorAll('.node')].map(node => Number(node.dataset.item))"


def test_the_first_fault_is_shown_with_both_sides(opened: Any) -> None:
    evaluate = opened(explorer())
    about = evaluate(ABOUT)
    for words in ("Add node_37", "model.py:37", "reference", "ONNX", "0.5", "37", "read by"):
        assert words in about
    assert evaluate("root.querySelectorAll('.about .spread .one').length") == 3
    assert evaluate("root.querySelectorAll('.about .spread .two').length") == 1
    shown = evaluate(SHOWN)
    assert {36, 37, 38, 30, 44} <= set(shown)
    assert len(shown) <= 40
    assert evaluate("root.querySelector('.node.here').dataset.item") == str(BAD)
    assert evaluate("root.querySelector('.row.here').dataset.path") == "layers.3.norm"


def test_a_click_on_a_node_shows_it(opened: Any) -> None:
    evaluate = opened(explorer())
    click = "root.querySelector('.node[data-item=\"36\"]').dispatchEvent(new Event('click'))"
    evaluate(click)
    assert "MatMul node_36" in evaluate(ABOUT)
    assert "(the same)" in evaluate(ABOUT)
    assert evaluate("root.querySelector('.row.here').dataset.path") == "layers.3.mlp"
    key = "new KeyboardEvent('keydown', {key: 'Enter'})"
    evaluate(f"root.querySelector('.node[data-item=\"38\"]').dispatchEvent({key})")
    assert "Softmax node_38" in evaluate(ABOUT)
    evaluate("[...root.querySelectorAll('button')].find(b => /first/.test(b.innerText)).click()")
    assert "Add node_37" in evaluate(ABOUT)


def test_no_node_lies_over_another(opened: Any) -> None:
    evaluate = opened(explorer())
    boxes = evaluate("""[...root.querySelectorAll(".node rect")].map(rect => {
      const {left, top, right, bottom} = rect.getBoundingClientRect();
      return [left, top, right, bottom];
    })""")
    for number, one in enumerate(boxes):
        for other in boxes[number + 1 :]:
            beside = one[2] <= other[0] or other[2] <= one[0]
            assert beside or one[3] <= other[1] or other[3] <= one[1], (one, other)
    overflow = """[...root.querySelectorAll(".node")].filter(node => {
      const box = node.querySelector("rect").getBoundingClientRect();
      return [...node.querySelectorAll(".kind, .label")].some(text =>
        text.getBoundingClientRect().width > box.width);
    }).length"""
    assert evaluate(overflow) == 0
    long = explorer(60, kind="SkipSimplifiedLayerNormalization", name="node_" + "W" * 60)
    assert opened(long)(overflow) == 0


def test_the_tree_opens_and_leads_to_a_module(opened: Any) -> None:
    evaluate = opened(explorer())
    rows = "[...root.querySelectorAll('.row')].map(row => row.dataset.path)"
    assert "layers.0.mlp" not in evaluate(rows)
    evaluate("root.querySelector('.row[data-path=\"layers.0\"]').click()")
    assert "layers.0.mlp" in evaluate(rows)
    assert set(evaluate(SHOWN)) <= set(range(10))
    evaluate("root.querySelector('.row[data-path=\"layers.0\"] .toggle').click()")
    assert "layers.0.mlp" not in evaluate(rows)


def test_nodes_are_found_by_name_operator_and_module(opened: Any) -> None:
    evaluate = opened(explorer())
    search = """(() => {
      const input = root.querySelector("input");
      input.value = WANTED;
      input.dispatchEvent(new Event("input"));
      return [...root.querySelectorAll(".hits button")].map(hit => hit.innerText);
    })()"""
    assert evaluate(search.replace("WANTED", "'node_52'")) == ["Add node_52"]
    assert len(evaluate(search.replace("WANTED", "'softmax'"))) == 12
    assert evaluate(search.replace("WANTED", "'nothing of it'")) == []
    evaluate(search.replace("WANTED", "'layers.5.norm'"))
    evaluate("root.querySelector('.hits button').click()")
    assert "layers.5.norm" not in evaluate(ABOUT)  # it is no fact of these items
    assert evaluate("root.querySelector('.row.here').dataset.path") == "layers.5.norm"


def test_a_search_without_a_hit_says_so_and_escape_ends_it(opened: Any) -> None:
    evaluate = opened(explorer())
    typed = "(input => { input.value = WANTED; input.dispatchEvent(new Event('input')); })"
    shown = "root.querySelector('.hits').innerText"
    evaluate(f"{typed.replace('WANTED', repr('nothing of it'))}(root.querySelector('input'))")
    assert evaluate(shown) == "nothing of that name"
    evaluate(f"{typed.replace('WANTED', repr('softmax'))}(root.querySelector('input'))")
    assert "Softmax" in evaluate(shown)
    key = "new KeyboardEvent('keydown', {key: 'Escape'})"
    evaluate(f"root.querySelector('input').dispatchEvent({key})")
    assert evaluate(shown) == ""


def test_long_paths_end_their_lines_between_names(opened: Any) -> None:
    place = "transformers/models/llama/modeling_llama.py:67 at 0.03436"
    evaluate = opened(explorer(60, facts=(("line", place),)))
    parts = (
        "[...root.querySelector('.about dd').childNodes].map(n => n.textContent || '|').join('')"
    )
    assert evaluate(parts) == "transformers/|models/|llama/|modeling_|llama.|py:67 at 0.03436"
    assert evaluate("root.querySelector('.about dd').textContent") == place


def test_five_thousand_nodes_stay_quick(opened: Any) -> None:
    evaluate = opened(explorer(5000))
    spent = evaluate("""(() => {
      const started = performance.now();
      for (let i = 0; i < 20; i++) root.explorer.show((i * 251) % 5000, true);
      return (performance.now() - started) / 20;
    })()""")
    assert spent < 250  # milliseconds a click, on a busy machine
    assert evaluate("root.querySelectorAll('*').length") < 5000  # of 500 layers side by side


def test_what_stands_in_a_report_is_text_and_never_runs(opened: Any) -> None:
    block = explorer(50, name=HOSTILE, kind=HOSTILE, path=f"a.{HOSTILE}", facts=((HOSTILE,) * 2,),
                     sides=((HOSTILE,) * 3,))  # fmt: skip
    evaluate = opened(block)
    assert HOSTILE in evaluate(ABOUT)
    assert evaluate("document.title") == "FAILED: compare"
    assert evaluate("document.images.length") == 0


@pytest.mark.parametrize("width", [400, 1280])
def test_it_fits_the_window(opened: Any, width: int) -> None:
    evaluate = opened(explorer(), width)
    assert evaluate("document.documentElement.scrollWidth") == width


def test_items_that_read_nothing_have_a_tree_only(opened: Any) -> None:
    evaluate = opened(explorer(60, reads=()))
    assert evaluate("root.querySelectorAll('.picture').length") == 0
    assert "Add node_37" in evaluate(ABOUT)
