import io
import json
import subprocess
import sys

import onnx
import pytest
from rich.console import Console

from torchferry.cli.commands.optimize import optimize
from torchferry.errors import UsageError
from torchferry.report import text

TEXT = """<ir_version: 10, opset_import: ["" : 20]>
g (float[a,3] x) => (float[a,3] y, float[a,3] s)
{ t = Identity(x) n = Neg(t) m = Neg(n) s = Sigmoid(m) y = Mul(m, s) }"""


@pytest.fixture
def model(tmp_path):
    path = tmp_path / "in.onnx"
    onnx.save(onnx.parser.parse_model(TEXT), path)
    return path


def shown(report):
    stream = io.StringIO()
    text.render(report, Console(file=stream, width=100))
    return stream.getvalue()


def test_a_file_is_rewritten(model, tmp_path):
    out = tmp_path / "out.onnx"
    report = optimize(model, out, patterns="default", verify=True)
    assert report.ok
    assert report.verdict == "5 → 2 nodes"
    assert [node.op_type for node in onnx.load(out).graph.node] == ["Sigmoid", "Mul"]
    assert report.data["applied"] == {"Identity": 1, "Neg": 1}
    assert f"torchferry inspect {out}" in report.next_steps[0]


def test_statistics_and_reasons(model):
    page = shown(optimize(model, patterns="default", stats=True, explain="ReshapeReshape"))
    assert "MergeEqual" in page
    assert "no node fits more than the first of its pattern" in page
    assert "-o OUT.onnx" in page


def test_each_rewrite_is_kept(model, tmp_path):
    folder = tmp_path / "rewrites"
    report = optimize(model, patterns="default", dump_applied_patterns=folder, max_iter=0)
    assert report.verdict == "5 → 5 nodes"
    assert not list(folder.iterdir())
    optimize(model, patterns="default", dump_applied_patterns=folder)
    assert len(list(folder.glob("*_before.onnx"))) == 2
    with pytest.raises(UsageError, match="cannot make the folder"):
        optimize(model, patterns="default", dump_applied_patterns=model / "in")


def test_wrong_use(model, tmp_path):
    with pytest.raises(UsageError, match="unknown patterns 'Casst'"):
        optimize(model, explain="Casst")
    with pytest.raises(UsageError, match="no folder that can be written to"):
        optimize(model, tmp_path / "none" / "out.onnx")


def test_on_the_command_line_without_torch(model, tmp_path):
    code = (
        "import sys; sys.argv = ['torchferry', *sys.argv[1:]]\n"
        "from torchferry.cli.main import main\n"
        "try: main()\n"
        "finally: print('torch' in sys.modules, file=sys.stderr)"
    )
    words = ["optimize", model, "-o", tmp_path / "o.onnx", "--patterns", "default-Neg", "--json",
             tmp_path / "o.json"]  # fmt: skip
    done = subprocess.run(
        [sys.executable, "-c", code, *map(str, words)], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr.split()[-1]) == (0, "False"), done.stderr
    assert json.loads((tmp_path / "o.json").read_text())["data"]["nodes_after"] == 4


@pytest.mark.parametrize(
    ("out", "says"),
    [(".", "ends in .onnx"), ("x.txt", "ends in .onnx"), ("no/x.onnx", "no folder")],
)
def test_where_nothing_can_be_written_is_said_at_once(model, tmp_path, out, says):
    with pytest.raises(UsageError, match=says):
        optimize(model, tmp_path / out)
    with pytest.raises(UsageError, match=r"is a folder: give the \.onnx file in it"):
        optimize(tmp_path)


def test_weights_of_few_bits_stay_and_are_counted(tmp_path):
    codes = ",".join(["7"] * 4096)
    path, out = tmp_path / "in.onnx", tmp_path / "out.onnx"
    body = f"w = Constant<value=int8[64,64] {{{codes}}}>() s = Constant<value_float=0.5>()"
    head = TEXT.splitlines()[0]
    graph = f"g (float[a,64] x) => (float[a,64] y) {{ {body} d = DequantizeLinear(w, s) "
    onnx.save(onnx.parser.parse_model(head + graph + "r = Relu(d) y = MatMul(x, r) }"), path)
    report = optimize(path, out, patterns="default")
    assert "1 weight kept in int8: 4.0 KiB instead of 16.0 KiB" in shown(report)
