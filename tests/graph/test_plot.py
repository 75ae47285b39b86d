import importlib
import stat
import sys

import pytest

from torchferry.errors import UsageError
from torchferry.graph import plot
from torchferry.graph.plot import plot_dot, plot_legend

PNG_MAKER = """#!{python}
import base64, pathlib, sys
text = sys.stdin.read()
pathlib.Path(r"{seen}").write_text(" ".join(sys.argv[1:]) + "\\n" + text)
if "refuse" in text:
    sys.exit("syntax error near line 1")
sys.stdout.buffer.write(base64.b64decode({png!r}))
"""
PIXEL = (  # 1 by 1, white
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAIAAACQd1PeAAAADElEQVR4nGP4//8/AAX+Av4N70a4AAAAAElFTkSuQmCC"
)


@pytest.fixture
def pyplot(monkeypatch):
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("agg")
    made = importlib.import_module("matplotlib.pyplot")
    yield made
    made.close("all")


@pytest.fixture
def no_graphviz(monkeypatch):
    monkeypatch.setattr(plot.shutil, "which", lambda name: None)


@pytest.fixture
def graphviz(monkeypatch, tmp_path):
    """A program that stands for ``dot``; the file has what it was given."""
    program, seen = tmp_path / "dot", tmp_path / "seen"
    program.write_text(PNG_MAKER.format(python=sys.executable, seen=seen, png=PIXEL))
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setattr(plot.shutil, "which", lambda name: str(program))
    return seen


def texts(axes):
    return [text.get_text() for text in axes.texts]


@pytest.mark.usefixtures("no_graphviz")
@pytest.mark.parametrize("engine", ["dot", None])
def test_a_model_is_drawn_without_graphviz(pyplot, control, engine):
    axes = plot_dot(control, engine=engine)
    assert {"ReduceSum", "my::fn", "then_branch", "B = [1, 2, 3, 4]"} <= set(texts(axes))
    assert len(axes.patches) == 33 + 28  # boxes and frames, arrows
    axes.get_figure().canvas.draw()


def test_texts_fit_the_boxes_whatever_the_size(pyplot, control):
    for figsize in (None, (2, 6)):
        axes = plot_dot(control, engine=None, figsize=figsize)
        figure = axes.get_figure()
        renderer = figure.canvas.get_renderer()
        boxes = [p.get_window_extent() for p in axes.patches if p.get_facecolor()[:3] != (0, 0, 0)]
        for text in axes.texts:
            extent = text.get_window_extent(renderer)
            assert any(b.x0 <= extent.x0 + 1 and extent.x1 - 1 <= b.x1 for b in boxes)
        if figsize:
            assert tuple(figure.get_size_inches()) == figsize


def test_given_axes_are_drawn_on(pyplot, chain):
    _, (left, right) = pyplot.subplots(1, 2)
    assert plot_dot(chain("Relu"), right, engine=None) is right
    assert texts(left) == []
    assert "Relu" in texts(right)


def test_a_dollar_is_no_formula(pyplot, chain):
    model = chain("Relu")
    model.graph.inputs[0].name = "a$\\frac{$b"
    axes = plot_dot(model, engine=None)
    axes.get_figure().canvas.draw()
    assert "a$\\frac{$b" in texts(axes)


def test_graphviz_draws_when_it_is_there(pyplot, graphviz, chain):
    axes = plot_dot(chain("Relu"))
    (image,) = axes.images
    assert image.get_array().shape[:2] == (1, 1)
    options, first, *_ = graphviz.read_text().splitlines()
    assert options == "-Tpng -Gdpi=150"
    assert first == 'digraph "g" {'


def test_dot_text_goes_to_graphviz_as_it_is(pyplot, graphviz):
    plot_dot("digraph{a -> b}")
    assert graphviz.read_text().splitlines()[1:] == ["digraph{a -> b}"]
    with pytest.raises(UsageError, match="graphviz cannot draw this: syntax error near line 1"):
        plot_dot("graph { refuse }")


@pytest.mark.usefixtures("no_graphviz", "pyplot")
def test_dot_text_needs_graphviz():
    with pytest.raises(UsageError, match="install graphviz, or give the model itself"):
        plot_dot("digraph { a -> b }")
    with pytest.raises(UsageError, match="there is no file"):
        plot_dot("digraph.onnx")


def test_an_engine_that_is_none(pyplot, chain):
    with pytest.raises(UsageError, match="no engine 'rm'; give one of dot"):
        plot_dot(chain("Relu"), engine="rm")


def test_without_matplotlib(monkeypatch, chain):
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", None)
    with pytest.raises(UsageError, match=r"pip install 'torchferry\[plot\]'"):
        plot_dot(chain("Relu"))
    with pytest.raises(UsageError, match="plot_legend needs matplotlib"):
        plot_legend("x")


def test_a_legend(pyplot):
    axes = plot_legend("two\nlines", "below", "tomato", 12)
    assert texts(axes) == ["two\nlines", "below"]
    figure = axes.get_figure()
    figure.canvas.draw()
    assert tuple(figure.get_size_inches()) == (2, 2)
    assert texts(plot_legend("x")) == ["x"]
