import re
import shutil
import subprocess

import pytest

from torchferry.graph.diagram import diagrams_of
from torchferry.graph.dot import dot_text


def test_nodes_and_edges_with_types(chain):
    text = dot_text(chain("Relu", "Exp"))
    assert re.search(r'n0 \[label="x\\nf32\[n, 2\]".*shape=ellipse', text)
    assert '  n0 -> n1 [label="x\\nf32[n, 2]"];' in text
    assert text.startswith('digraph "g" {')
    assert text.endswith("}\n")


def test_subgraphs_and_functions_are_clusters(control):
    text = dot_text(control)
    clusters = re.findall(r"subgraph (cluster_\w+) {\n\s*label=\"([^\"]*)\"", text)
    assert sorted(label for _, label in clusters) == [
        "body", "else_branch", "function my::fn", "then_branch",
    ]  # fmt: skip
    assert len({name for name, _ in clusters}) == 4
    assert text.count("{") == text.count("}")


def test_what_a_subgraph_takes_comes_by_a_dashed_edge(control):
    text = dot_text(control)
    main = diagrams_of(control)[0]
    x, sqrt, if_, loop = (
        next(b for b in main.boxes if b.title == t) for t in ("x", "Sqrt", "If", "Loop")
    )
    dashed = set(re.findall(r"(n\d+) -> (n\d+) \[style=dashed", text))
    inside = {(b.title, i.title): b.name for i in if_.inner for b in i.boxes}
    assert (x.name, inside["x", "then_branch"]) in dashed
    assert (x.name, inside["x", "else_branch"]) in dashed
    assert (sqrt.name, inside["scale", "else_branch"]) in dashed
    assert (inside["t", "then_branch"], if_.name) in dashed
    (z,) = (b.name for b in loop.inner[0].boxes if b.title == "z")
    assert (if_.name, z) in dashed
    assert len(dashed) == 8


def test_labels_are_escaped(chain):
    model = chain("Relu", name='say "\\N"\n')
    model.graph.inputs[0].name = 'x"]; evil [label="'
    text = dot_text(model)
    assert text.startswith('digraph "say \\"\\\\N\\" " {')
    assert 'label="x\\"]; evil [label=\\"\\nf32' in text
    unquoted = re.sub(r'"(?:\\.|[^"\\])*"', "", text)
    assert "evil" not in unquoted


@pytest.mark.skipif(shutil.which("dot") is None, reason="graphviz is not installed")
def test_graphviz_takes_it(control, chain):
    hostile = chain("Relu", name='say "\\N"\n')
    for model in (control, hostile):
        done = subprocess.run(["dot", "-Tsvg"], input=dot_text(model).encode(), check=False)
        assert done.returncode == 0
