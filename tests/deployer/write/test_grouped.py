"""One buffer of keys and values: which graphs can have it, and that it computes the same."""

import json

import numpy as np
import onnx_ir as ir
import pytest
import torch

from deployer_folders import save_wide_llama
from torchferry.deployer.write.build import export_graph
from torchferry.deployer.write.grouped import group_attention
from torchferry.exporter.steps import Steps
from torchferry.quantizer import RECIPES, quantize_file
from torchferry.runner import open_session
from torchferry.sources.source import load_source

CONTEXT = 64


@pytest.fixture(scope="module")
def wide(tmp_path_factory):
    """(folder, the model's source): a graph whose attention has one form in all layers."""
    folder = tmp_path_factory.mktemp("wide")
    source = load_source(str(save_wide_llama(folder / "model")), dtype="fp32")
    path = folder / "model.onnx"
    report = export_graph(source, path, Steps(False), target="onnxruntime", opset=None, budget=1)
    assert report.data
    return folder, source


def fast(folder):
    model = ir.load(folder / "model.onnx")
    why = group_attention(model, CONTEXT)
    ir.save(model, folder / "fast.onnx")
    return why, model


@pytest.mark.slow
def test_weights_stay_in_their_file_and_every_layer_is_changed(wide):
    folder, _ = wide
    why, model = fast(folder)
    assert why == ""
    kinds = [node.op_type for node in model.graph]
    assert kinds.count("GroupQueryAttention") == 2
    assert not {"Attention", "RotaryEmbedding", "Range", "Cos"} & {*kinds}
    assert "position_ids" not in {value.name for value in model.graph.inputs}
    assert not (folder / "fast.onnx_data").exists()
    assert (folder / "fast.onnx").stat().st_size < 60_000


def test_queries_keys_and_values_of_one_product_go_to_the_kernel_together(wide):
    folder, _ = wide
    quantize_file(folder / "model.onnx", folder / "model_q4.onnx", RECIPES["int4"])
    model = ir.load(folder / "model_q4.onnx")
    before = sum(node.op_type == "Split" for node in model.graph)
    assert group_attention(model, CONTEXT) == ""
    sites = [node for node in model.graph if node.op_type == "GroupQueryAttention"]
    assert [node.inputs[0].producer().op_type for node in sites] == ["MatMulNBits"] * 2
    assert all(node.inputs[1] is node.inputs[2] is None for node in sites)
    # Those of the gate and what it lets through stay.
    assert (before, sum(node.op_type == "Split" for node in model.graph)) == (4, 2)
    ir.save(model, folder / "fast_q4.onnx")
    ours, plain = (open_session(folder / name) for name in ("fast_q4.onnx", "model_q4.onnx"))
    for batch in (1, 3):
        ids = np.arange(5 * batch).reshape(batch, 5) + 4
        fed = {"input_ids": ids, "attention_mask": np.ones_like(ids),
               "position_ids": np.arange(5)[None].repeat(batch, 0)}  # fmt: skip
        results = [
            session.run(["logits"], {
                value.name: fed[value.name] if value.name in fed
                else np.zeros((batch, 2, length, 16), np.float32)
                for value in session.get_inputs()
            })[0]
            for session, length in ((ours, CONTEXT), (plain, 0))
        ]  # fmt: skip
        np.testing.assert_allclose(*results, atol=0.05 * np.abs(results[1]).max())


@pytest.mark.parametrize("lengths", [(5,), (1,), (6, 3, 9)])
def test_tokens_of_different_lengths_go_on_in_one_buffer(wide, lengths):
    """Prompts filled up on the right, then a token more for each, against PyTorch alone."""
    folder, source = wide
    fast(folder)
    session = open_session(folder / "fast.onnx")
    generator = torch.Generator().manual_seed(len(lengths))
    rows = [torch.randint(3, 90, (1, n + 1), generator=generator) for n in lengths]
    longest, batch = max(lengths), len(lengths)
    ids, mask = np.zeros((batch, longest), np.int64), np.zeros((batch, longest), np.int64)
    for place, (row, n) in enumerate(zip(rows, lengths, strict=True)):
        ids[place, :n], mask[place, :n] = row[0, :n].numpy(), 1
    names = [v.name for v in session.get_inputs() if v.name.startswith("past_key_values")]
    empty = {name: np.zeros((batch, 2, CONTEXT, 16), np.float32) for name in names}
    outputs = [value.name for value in session.get_outputs()]
    first = dict(zip(outputs, session.run(
        outputs, {"input_ids": ids, "attention_mask": mask, **empty}), strict=True))  # fmt: skip
    held = {name: first[name.replace("past_key_values", "present")] for name in names}
    assert next(iter(held.values())).shape == (batch, 2, CONTEXT, 16)
    last = np.stack([row[:, -1].numpy() for row in rows])
    more = np.zeros((batch, longest + 1), np.int64)
    for place, n in enumerate(lengths):
        more[place, : n + 1] = 1
    second = dict(zip(outputs, session.run(
        outputs, {"input_ids": last, "attention_mask": more, **held}), strict=True))  # fmt: skip
    for place, (row, n) in enumerate(zip(rows, lengths, strict=True)):
        with torch.no_grad():
            wanted = source.model(row).logits[0]
        got = torch.from_numpy(first["logits"][place, :n])
        torch.testing.assert_close(got, wanted[:n], atol=2e-4, rtol=1e-4)
        new = torch.from_numpy(second["logits"][place, 0])
        torch.testing.assert_close(new, wanted[n], atol=2e-4, rtol=1e-4)


def test_a_graph_in_another_form_stays_as_it_is(wide, deployed):
    folder, _ = wide
    narrow = ir.load(deployed[0] / "onnx/model.onnx")
    nodes = len(narrow.graph)
    assert group_attention(narrow, CONTEXT) == (
        "its heads are no multiple of 16 numbers, as the kernel wants them"
    )
    assert len(narrow.graph) == nodes
    windowed = ir.load(folder / "model.onnx")
    before = next(node for node in windowed.graph if node.op_type == "LessOrEqual")
    before.op_type = "Less"  # no token sees itself
    assert group_attention(windowed, CONTEXT) == "its mask is not that of all earlier tokens"
    other = ir.load(folder / "model.onnx")
    next(node for node in other.graph if node.op_type == "Attention").attributes["is_causal"] = (
        ir.AttrInt64("is_causal", 1)
    )
    assert group_attention(other, CONTEXT) == "its attention is in another form"


def test_a_window_is_seen_at_the_end_of_the_context(wide):
    """A mask that leaves out what is far away differs at full length only."""
    folder, _ = wide
    model = ir.load(folder / "model.onnx")
    graph = model.graph
    compare = next(node for node in graph if node.op_type == "LessOrEqual")
    far = ir.Value(name="far", const_value=ir.tensor(np.array(40, np.int64), name="far"))
    graph.register_initializer(far)
    begin = ir.node("Sub", [compare.inputs[1], far])
    near = ir.node("Greater", [compare.inputs[0], begin.outputs[0]])
    both = ir.node("And", [compare.outputs[0], near.outputs[0]])
    graph.insert_after(compare, [begin, near, both])
    ir.convenience.replace_all_uses_with(compare.outputs[0], both.outputs[0])
    both.replace_input_with(0, compare.outputs[0])
    ir.save(model, folder / "windowed.onnx")
    why = "its mask is not that of all earlier tokens"
    for context, said in ((32, ""), (CONTEXT, why)):
        assert group_attention(ir.load(folder / "windowed.onnx"), context) == said


@pytest.mark.slow
def test_genai_shares_the_buffer(tmp_path):
    from torchferry.deployer import deploy
    from torchferry.deployer.prove.runtimes import RUNNERS

    if not RUNNERS["genai"].installed():
        pytest.skip(f"genai is not installed: {RUNNERS['genai'].missing}")
    folder, out = save_wide_llama(tmp_path / "model"), tmp_path / "out"
    report = deploy(folder, out, runtimes="genai", precisions="fp32,fp16,int8,int4")
    assert report.ok, report.problems
    assert all(run["same"] for run in report.data["runs"])
    settings = json.loads((out / "genai_config.json").read_text())
    assert settings["search"]["past_present_share_buffer"] is True
    assert settings["model"]["decoder"]["filename"] == "onnx/genai_model.onnx"
    assert "position_ids" not in settings["model"]["decoder"]["inputs"]
    assert not list((out / "onnx").glob("genai*_data"))
