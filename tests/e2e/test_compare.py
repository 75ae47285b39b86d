"""Exports of real architectures beside their models: healthy, faulty, and by other exporters."""

from __future__ import annotations

import itertools
import logging
import subprocess
import sys
from pathlib import Path

import onnx_ir as ir
import pytest
import torch

import torchferry
from families import slow_among
from torchferry.graph import io
from torchferry.observer import Observation
from torchferry.report import html
from torchferry.report.comparison import comparison_report
from torchferry.sources.source import load_source


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    """``exported(name)`` → the model of the zoo, its input sets, and an export of it."""
    made = {}

    def export(name):
        if name not in made:
            source = load_source(f"zoo:{name}")
            seen = Observation.from_inputs(source.model, source.input_sets)
            path = tmp_path_factory.mktemp(name) / "model.onnx"
            torchferry.export(source.model, seen, check=False).save(path)
            made[name] = source.model, source.input_sets, path
        return made[name]

    return export


HEALTHY = ["tiny-llm", "tiny-bert", "lstm", "tiny-resnet", "mixtral"]
QUICK = [("tiny-llm", "torch"), ("tiny-bert", "own"), ("lstm", "torch")]
PAIRS = list(itertools.product(HEALTHY, ["own", "torch"]))


@pytest.mark.sample(1)
@pytest.mark.parametrize(("name", "feed"), slow_among(PAIRS, set(PAIRS) - set(QUICK)))
def test_a_healthy_export_agrees_value_by_value(exported, name, feed):
    model, sets, path = exported(name)
    found = torchferry.compare(model, path, sets, feed=feed)
    assert found.ok, str(found)
    assert len(found.rows) > found.nodes // 2
    judged = [row for row in found.rows if row.verdict == "equal"]
    # Experts sort tokens by expert: equal numbers, in any order.
    assert len(judged) == len(found.rows) or name == "mixtral"
    assert len(found.outputs) == len(io.load(path).graph.outputs)
    assert max(row.said.abs / max(row.said.scale, 1e-4) for row in judged) < 1e-5


def test_a_fault_in_an_optimized_file_is_named(exported, tmp_path):
    model, sets, path = exported("tiny-bert")
    changed = io.load(path)
    node = [n for n in changed.graph if n.op_type == "LayerNormalization"][2]
    node.attributes["epsilon"] = ir.AttrFloat32("epsilon", 0.05)
    io.save(changed, tmp_path / "changed.onnx")
    found = torchferry.compare(model, tmp_path / "changed.onnx", sets, cut=tmp_path / "cut.onnx")
    assert found.suspects == (node.name,)
    assert found.first.layer.startswith("encoder.layer")
    assert "modeling_bert.py" in found.first.line or "normalization.py" in found.first.line
    piece = io.load(tmp_path / "cut.onnx")
    assert [n.op_type for n in piece.graph] == ["LayerNormalization"]
    two = torchferry.compare(path, tmp_path / "changed.onnx")
    assert two.suspects == (node.name,)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("against", slow_among(["program", "eager"], ["program"]))
def test_a_file_of_torch_onnx_is_aligned(exported, against, caplog):
    caplog.set_level(logging.CRITICAL)
    model, sets, _ = exported("tiny-bert")
    args, kwargs = sets[0]
    program = torch.onnx.export(model, args, kwargs=kwargs, dynamo=True, verbose=False)
    found = torchferry.compare(model, program.model, sets[0], against=against)
    assert found.ok, str(found)
    layers = {row.layer for row in found.rows}
    assert len(found.rows) >= 15
    assert any(layer.startswith("encoder.layer.0.attention") for layer in layers)
    norm = [n for n in program.model.graph if n.op_type == "LayerNormalization"][2]
    norm.attributes["epsilon"] = ir.AttrFloat32("epsilon", 0.05)
    found = torchferry.compare(model, program.model, sets[0], against=against)
    assert norm.name in found.suspects
    assert found.first.node == norm.name


MEMORY = """
import pathlib, threading, torch, torchferry

def anonymous():  # MiB; pages of mapped files are the kernel's to drop
    words = pathlib.Path("/proc/self/status").read_text().split()
    return int(words[words.index("RssAnon:") + 1]) / 1024

model = torch.nn.Sequential(*[torch.nn.Linear(1024, 1024) for _ in range(100)]).eval()
program = torch.export.export(model, (torch.rand(8, 1024),))
onnx = torchferry.convert(program)
before, peak, stop = anonymous(), [0.0], threading.Event()

def watch():
    while not stop.wait(0.02):
        peak[0] = max(peak[0], anonymous())

watcher = threading.Thread(target=watch)
watcher.start()
found = torchferry.compare(program, onnx, feed="torch")
stop.set()
watcher.join()
print(found.ok, len(found.rows), (400 + peak[0] - before) / 400)
"""


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="the kernel tells no RssAnon")
def test_a_large_model_is_compared_in_half_of_its_size_of_further_memory():
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", MEMORY], capture_output=True, text=True, check=True
    )
    ok, rows, times = done.stdout.split()
    assert (ok, rows) == ("True", "100")
    assert float(times) < 1.5


def test_the_page_of_a_comparison_opens_in_a_browser(exported, tmp_path, browser):
    model, sets, path = exported("tiny-llm")
    changed = io.load(path)
    node = next(n for n in changed.graph if n.op_type == "ReduceMean")
    add = next(user for user, _ in node.outputs[0].uses())  # of epsilon
    value = ir.Value(name="wrong", const_value=ir.tensor(torch.tensor(0.1).numpy()))
    changed.graph.register_initializer(value)
    index = next(i for i, v in enumerate(add.inputs) if v is not node.outputs[0])
    add.replace_input_with(index, value)
    io.save(changed, tmp_path / "changed.onnx")
    found = torchferry.compare(model, tmp_path / "changed.onnx", sets, feed="torch")
    assert found.suspects == (add.name,)
    file = tmp_path / "page.html"
    html.dump(comparison_report("compare zoo:tiny-llm changed.onnx", found), file)
    assert file.stat().st_size <= html.MAX_BYTES
    page = browser.open(file)
    assert page.requests == [file.as_uri()]
    assert page.console_errors == []
    text = browser.evaluate(file, "document.body.innerText")
    for words in (add.name, "First divergence", "Error by depth", "Layers", "Values", "differs"):
        assert words in text
    for width in (400, 1280):
        script = "document.documentElement.scrollWidth"
        assert browser.evaluate(file, script, width=width, height=900) <= width


def test_the_verdict_says_that_a_set_of_inputs_was_left_out():
    linear = torch.nn.Linear(4, 2)
    program = torchferry.export(linear, [(torch.rand(2, 4),), (torch.rand(2, 4),)], check=False)
    found = torchferry.compare(linear, program, [(torch.rand(2, 4),), (torch.rand(5, 4),)])
    report = comparison_report("compare", found)
    assert found.ok
    assert found.left_out == 1
    assert report.verdict.endswith("; 1 set of inputs could not be compared")
