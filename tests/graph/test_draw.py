import xml.etree.ElementTree as ET

import pytest

from torchferry.errors import UsageError
from torchferry.graph.draw import draw_svg

SVG = "{http://www.w3.org/2000/svg}"


def test_the_picture_shows_everything(control):
    root = ET.fromstring(draw_svg(control))  # noqa: S314  (it was made here)
    texts = [element.text for element in root.iter(f"{SVG}text")]
    for text in ("ReduceSum", "my::fn", "then_branch", "B = [1, 2, 3, 4]", "function my::fn"):
        assert text in texts
    assert len(list(root.iter(f"{SVG}rect"))) == 1 + 30 + 3  # paper, boxes, frames of subgraphs
    told = [element.text for element in root.iter(f"{SVG}title")]
    assert "x f32[n, 4]" in told


def test_names_are_escaped(chain):
    model = chain("Relu", name="<script>alert(1)</script>")
    model.graph.inputs[0].name = 'a<b>&"\x07'
    text = draw_svg(model)
    assert "<script" not in text
    root = ET.fromstring(text)  # noqa: S314  (as above)
    assert 'a<b>&"\N{REPLACEMENT CHARACTER}' in [e.text for e in root.iter(f"{SVG}text")]


def test_it_loads_nothing(control):
    text = draw_svg(control)
    assert "http" not in text.replace("http://www.w3.org/2000/svg", "")
    assert "href" not in text
    assert "@import" not in text


@pytest.mark.parametrize("width", [600, 1280])
def test_a_browser_shows_texts_within_their_boxes(control, browser, tmp_path, width):
    file = tmp_path / "x.svg"
    file.write_text(draw_svg(control))
    sticking_out = browser.evaluate(
        file,
        """[...document.querySelectorAll('text.t, text.l')].filter(t => {
            const b = t.getBBox();
            return ![...document.querySelectorAll('rect[rx]')].map(r => r.getBBox()).some(r =>
                r.x <= b.x && b.x + b.width <= r.x + r.width
                && r.y <= b.y + 3 && b.y + b.height <= r.y + r.height + 3);
        }).map(t => t.textContent)""",
        width=width,
    )
    assert sticking_out == []


def test_a_value_that_depends_on_itself(chain):
    model = chain("Relu", "Exp")
    first, second = model.graph
    first.replace_input_with(0, second.outputs[0])
    with pytest.raises(UsageError, match="depends on itself"):
        draw_svg(model)
