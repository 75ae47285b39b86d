"""Encoder-decoders from a model to graphs that runtimes load."""

import json

import pytest

from deployer_folders import save_family, save_whisper
from torchferry.deployer import deploy
from torchferry.deployer.prove.runtimes import RUNNERS
from torchferry.graph import io


def test_the_files_are_those_that_optimum_and_transformers_js_look_for(deployed_bart):
    out, report = deployed_bart
    assert report.ok, report.problems
    names = {f"{part}{end}.onnx{data}" for part in ("encoder_model", "decoder_model_merged")
             for end in ("", "_quantized", "_q4") for data in ("", "_data")}  # fmt: skip
    assert {path.name for path in (out / "onnx").iterdir()} == names
    settings = json.loads((out / "config.json").read_text())
    external = settings["transformers.js_config"]["use_external_data_format"]
    assert external == {name: 1 for name in names if name.endswith(".onnx")}
    graph = io.load(out / "onnx/decoder_model_merged.onnx").graph
    pairs = [f"{i}.{part}.{x}" for i in range(2) for part in ("decoder", "encoder")
             for x in ("key", "value")]  # fmt: skip
    past = [value.name for value in graph.inputs if value.name.startswith("past")]
    assert past == [f"past_key_values.{pair}" for pair in pairs]
    assert {value.name for value in graph.inputs} - {*past} == {
        "input_ids", "encoder_attention_mask", "encoder_hidden_states", "use_cache_branch",
    }  # fmt: skip
    assert {value.name for value in graph.outputs} == {
        "logits", *(f"present.{pair}" for pair in pairs),
    }  # fmt: skip
    # The decoder is not there twice: only projections of the encoder's states are in the branch.
    (branch,) = [node for node in graph if node.op_type == "If"]
    inner = branch.attributes["else_branch"].as_graph()
    assert sum(node.op_type == "MatMul" for node in inner) == 4


def test_eight_bits_are_smaller_and_near(deployed_bart):
    _, report = deployed_bart
    exact, near = (report.data["agreements"][name] for name in ("fp32", "int8"))
    assert exact["kl"] < 1e-6
    assert exact["kl"] < near["kl"] < 0.01
    sizes = {graph["name"]: graph for graph in report.data["graphs"]}
    assert set(sizes["int8"]["bits"].values()) == {8}
    assert any("encoder_attn" in name for name in sizes["int8"]["bits"])


def test_four_bits_are_fitted_in_the_encoder_and_in_the_decoder(deployed_bart):
    """The weights that cost most keep eight; each weight of both parts is measured and fitted."""
    _, report = deployed_bart
    bits = {graph["name"]: graph["bits"] for graph in report.data["graphs"]}
    inner = {name for name in bits["int8"] if "layers" in name or "lm_head" in name}
    assert {name.split(".")[0] for name in inner} == {"encoder", "model"}
    names = [row["name"] for row in report.data["sensitivity"]]
    assert sorted(names) == sorted(inner)
    assert report.data["fitted"] == sum(count == 4 for count in bits["int4"].values()) > 10
    assert set(bits["int4"].values()) == {4, 8}
    seen = report.data["agreements"]
    assert seen["int8"]["kl"] < seen["int4"]["kl"] < 0.1


@pytest.mark.slow
@pytest.mark.parametrize("family", ["t5", "marian", "mbart", "bart", "whisper"])
def test_every_runtime_that_is_here_gives_pytorchs_tokens(family, tmp_path):
    """Greedy tokens of one prompt and of three, of different lengths."""
    runtimes = [n for n in ("onnxruntime", "optimum", "transformers.js") if RUNNERS[n].installed()]
    folder = save_family(family, tmp_path / family)
    precisions = {"bart": "fp32,fp16,int8", "t5": "fp32,int4"}.get(family, "fp32")
    report = deploy(folder, tmp_path / "out", runtimes=runtimes, precisions=precisions)
    assert report.ok, report.problems
    assert {run["runtime"] for run in report.data["runs"] if run["same"]} == {*runtimes}


@pytest.mark.slow
def test_whisper_in_every_runtime_in_a_language_of_several(tmp_path):
    names = ("onnxruntime", "genai", "transformers.js")
    runtimes = [name for name in names if RUNNERS[name].installed()]
    folder = save_whisper(tmp_path / "whisper")
    out = tmp_path / "out"
    report = deploy(folder, out, runtimes=runtimes, precisions="fp32,fp16,int8,int4")
    assert report.ok, report.problems
    assert all(run["same"] for run in report.data["runs"])
    if "genai" in runtimes:  # it refers to the weights of the others
        assert {p.name for p in (out / "onnx").glob("genai*")} == {
            f"genai_{part}{end}.onnx" for part in ("encoder", "decoder")
            for end in ("", "_fp16", "_quantized", "_q4", "_q4f16")
        }  # fmt: skip
