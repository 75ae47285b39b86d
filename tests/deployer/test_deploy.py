"""A folder that runtimes load: what is in it, what is said of it, and what is refused."""

import json
import re
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import torch

import torchferry as tf
from deployer_folders import save_family
from torchferry.deployer import deploy
from torchferry.deployer.prove.runtimes import RUNNERS
from torchferry.errors import UsageError
from torchferry.graph import io
from torchferry.zoo.catalogue import build

FILES = {
    "README.md", "report.html", "deployment.json", "config.json", "generation_config.json",
    "genai_config.json", "tokenizer.json", "tokenizer_config.json",
    *(f"onnx/{name}.onnx{end}" for end in ("", "_data")
      for name in ("model", "model_fp16", "model_quantized", "model_q4", "model_q4f16")),
}  # fmt: skip


def test_the_folder_has_the_layout_of_a_repository(deployed):
    out, report = deployed
    assert report.ok, report.problems
    files = {p.relative_to(out).as_posix() for p in out.rglob("*") if p.is_file()}
    assert files == FILES
    assert json.loads((out / "deployment.json").read_text())["files"] == sorted(FILES)


def test_the_report_says_what_ran_and_what_is_missing(deployed):
    _, report = deployed
    runs = report.data["runs"]
    here = {run["runtime"] for run in runs if run["version"]}
    assert "onnxruntime" in here
    assert {run["runtime"] for run in runs} == {"onnxruntime", "genai", "optimum"}
    for run in runs:
        assert run["same"] is (True if run["version"] else None)
        missing = run["runtime"] not in here
        assert missing == (f"not tried: {run['runtime']}" in report.verdict) or missing
    exact = report.data["agreements"]
    assert exact["fp32"]["kl"] < 1e-6
    assert exact["fp16"]["kl"] < 1e-4
    assert exact["fp16"]["kl"] < exact["int8"]["kl"] < exact["int4"]["kl"] < 0.01
    assert exact["int8"]["top1"] > 0.9


def test_sizes_shrink_and_the_table_of_sensitivity_covers_each_weight_once(deployed):
    _, report = deployed
    sizes = {graph["name"]: graph["bytes"] for graph in report.data["graphs"]}
    assert sizes["fp16"] < sizes["fp32"]
    bits = {graph["name"]: graph["bits"] for graph in report.data["graphs"]}
    assert set(bits["int8"].values()) == {8}
    assert set(bits["int4"].values()) == {4, 8}
    assert bits["int4+fp16"] == bits["int4"]
    names = [row["name"] for row in report.data["sensitivity"]]
    assert len(names) == len(set(names))
    weights = {name for name in bits["int4"] if "layers" in name or "lm_head" in name}
    assert set(names) == weights
    assert report.data["fitted"] == sum(count == 4 for count in bits["int4"].values())


def test_the_card_shows_the_figures_and_how_to_run_each_runtime(deployed):
    out, report = deployed
    card = (out / "README.md").read_text()
    for section in report.sections[:2]:
        for row in section.blocks[0].rows:
            assert str(row[0]) in card
    for text in ('tf.load("llama")', 'og.Config("llama")', "ORTModelForCausalLM", "model_q4f16"):
        assert text in card


RUNNABLE = {"onnxruntime": "import torchferry", "genai": "import onnxruntime_genai"}


def run_card(out, runtime, monkeypatch):
    """Run what the card says of a runtime where it says it; return the names it made."""
    pytest.importorskip(RUNNABLE[runtime].split()[1])
    card = (out / "README.md").read_text()
    (code,) = re.findall(rf"### {runtime}\n\n```python\n(.*?)```", card, re.DOTALL)
    monkeypatch.chdir(out.parent)
    names = {}
    exec(compile(code, "README.md", "exec"), names)  # noqa: S102  (our own document)
    return names


class Words:
    """In the place of genai's tokenizer, which reads no tokenizer of whole words."""

    def __init__(self, model):
        pass

    def encode(self, text):
        return [len(text), 6]

    def decode(self, tokens):
        return str(tokens.tolist())


@pytest.mark.parametrize("runtime", ["onnxruntime", "genai"])
def test_the_card_runs_as_it_stands(deployed, runtime, monkeypatch, capsys):
    if runtime == "genai":
        monkeypatch.setattr(pytest.importorskip("onnxruntime_genai"), "Tokenizer", Words)
    names = run_card(deployed[0], runtime, monkeypatch)
    assert capsys.readouterr().out.strip()
    assert runtime == "genai" or names["outputs"].shape[1] > 20


@pytest.mark.slow
def test_the_card_of_an_encoder_decoder_runs_as_it_stands(deployed_bart, monkeypatch):
    assert run_card(deployed_bart[0], "onnxruntime", monkeypatch)["outputs"].shape == (1, 21)


def test_graphs_say_nothing_of_the_machine_that_made_them(deployed):
    out, _ = deployed
    for path in (out / "onnx").glob("*.onnx"):
        assert b"site-packages" not in path.read_bytes()
        model = io.load(path)
        assert not any(node.metadata_props for node in model.graph)


@pytest.mark.parametrize(
    "graph", ["onnx/model.onnx", "onnx/model_fp16.onnx", "onnx/model_q4.onnx"]
)
def test_a_loaded_decoder_generates_as_transformers_does(deployed, llama_folder, graph):
    transformers = pytest.importorskip("transformers")
    out, _ = deployed
    ours = tf.load(out, graph=graph)
    theirs = transformers.AutoModelForCausalLM.from_pretrained(llama_folder).eval()
    torch.manual_seed(0)
    ids = torch.randint(3, 90, (2, 6))
    mask = torch.ones_like(ids)
    mask[0, :2] = 0
    exact = "q4" not in graph
    for rows in (1, 2):
        for options in ({}, {"num_beams": 3}, {"num_beams": 2, "num_return_sequences": 2}):
            asked = {"input_ids": ids[:rows], "attention_mask": mask[:rows], "do_sample": False,
                     "max_new_tokens": 6, "min_new_tokens": 6, "pad_token_id": 0}  # fmt: skip
            got, wanted = ours.generate(**asked, **options), theirs.generate(**asked, **options)
            assert got.shape == wanted.shape
            assert not exact or got.tolist() == wanted.tolist()
    logits = ours(ids).logits
    assert logits.shape == (2, 6, 99)
    with torch.no_grad():
        limit = {"onnx/model.onnx": 1e-5, "onnx/model_fp16.onnx": 0.02}.get(graph, 0.7)
        assert tf.max_diff(theirs(ids).logits, logits).abs < limit


def test_sampling_is_transformers_own(deployed, llama_folder):
    transformers = pytest.importorskip("transformers")
    out, _ = deployed
    ours = tf.load(out)
    theirs = transformers.AutoModelForCausalLM.from_pretrained(llama_folder).eval()
    asked = {"input_ids": torch.tensor([[5, 6, 7]]), "do_sample": True, "top_p": 0.9,
             "temperature": 0.7, "max_new_tokens": 8, "pad_token_id": 0}  # fmt: skip
    torch.manual_seed(3)
    wanted = theirs.generate(**asked)
    torch.manual_seed(3)
    assert ours.generate(**asked).tolist() == wanted.tolist()


def test_an_encoder_is_compared_by_its_vectors(tmp_path):
    transformers = pytest.importorskip("transformers")
    folder = save_family("bert/text-classification", tmp_path / "bert")
    out = tmp_path / "out"
    report = deploy(folder, out, runtimes="onnxruntime,optimum", precisions="int8,fp32")
    assert report.ok, report.problems
    seen = report.data["agreements"]
    assert seen["fp32"]["least"] > 0.99999
    assert 0.999 < seen["int8"]["least"] < 1
    files = {p.relative_to(out).as_posix() for p in out.rglob("*") if p.is_file()}
    assert not files & {"genai_config.json", "generation_config.json"}
    assert json.loads((out / "tokenizer_config.json").read_text())["model_input_names"] == [
        "input_ids", "token_type_ids", "attention_mask",
    ]  # fmt: skip
    assert "ORTModelForSequenceClassification" in (out / "README.md").read_text()
    model = transformers.AutoModelForSequenceClassification.from_pretrained(folder).eval()
    inputs = transformers.AutoTokenizer.from_pretrained(out)("One two", return_tensors="pt")
    with torch.no_grad():
        wanted = model(**inputs).logits
    for graph, limit in (("onnx/model.onnx", 1e-5), ("onnx/model_quantized.onnx", 0.05)):
        assert tf.max_diff(wanted, tf.load(out, graph=graph)(**inputs).logits).abs < limit


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "processor", "precisions"),
    [("vit/image-classification", "ViTImageProcessor", "fp32,fp16,int8"),
     ("vit/image-classification", "ViTImageProcessor", "bf16"),
     ("resnet/image-classification", "ConvNextImageProcessor", "fp32"),
     ("segformer/image-segmentation", "SegformerImageProcessor", "fp32"),
     ("wav2vec2", "Wav2Vec2FeatureExtractor", "fp32,fp16,int8"),
     ("hubert/audio-classification", "Wav2Vec2FeatureExtractor", "fp32")],
)  # fmt: skip
def test_models_of_images_and_sounds(tmp_path, name, processor, precisions, monkeypatch):
    transformers = pytest.importorskip("transformers")
    build(name).model.save_pretrained(tmp_path / "model")
    sizes = {"size": {"height": 24, "width": 40}} if name.startswith("vit") else {}
    getattr(transformers, processor)(**sizes).save_pretrained(tmp_path / "model")
    runtimes = [n for n in ("onnxruntime", "optimum", "transformers.js") if RUNNERS[n].installed()]
    runtimes = ["onnxruntime"] if precisions == "bf16" else runtimes
    out = tmp_path / "out"
    report = deploy(tmp_path / "model", out, runtimes=runtimes, precisions=precisions)
    assert report.ok, report.problems
    assert {run["runtime"] for run in report.data["runs"] if run["same"]} == {*runtimes}
    assert (out / "preprocessor_config.json").is_file()
    pytest.importorskip("PIL.Image").new("RGB", (64, 48)).save(tmp_path / "image.png")
    assert run_card(out, "onnxruntime", monkeypatch)["outputs"]
    if "int8" in precisions:
        assert 0.999 < report.data["agreements"]["int8"]["least"] < 1


@pytest.mark.slow
def test_convolutions_get_eight_bits_by_recorded_ranges(tmp_path):
    report = deploy("zoo:resnet/image-classification", tmp_path / "out", precisions="int8,fp32",
                    budget=60)  # fmt: skip
    assert report.ok, report.problems
    sizes = {graph["name"]: graph for graph in report.data["graphs"]}
    assert sizes["int8"]["bytes"] < 0.5 * sizes["fp32"]["bytes"]
    assert len(sizes["int8"]["bits"]) == 5
    assert report.data["agreements"]["int8"]["least"] > 0.999


BAD = [
    ({"runtimes": "onnxruntime,tensorrt"}, "there is no runtime 'tensorrt': choose from onnxr"),
    ({"runtimes": ""}, "no runtime is given: choose from"),
    (
        {"precisions": "fp8"},
        "there is no precision 'fp8': choose from fp32, fp16, bf16, int8, int4",
    ),
    ({"calibrate": "x.txt"}, "are for int4: add it to --precision"),
    ({"precisions": "int4", "target_size": "much"}, "--target-size much is no size"),
    ({"precisions": "int4", "target_size": "1 MiB", "target_loss": 0.1}, "exclude each other"),
    (
        {"precisions": "int4", "target_loss": 1.0, "calibrate": "none"},
        "leave out --calibrate none",
    ),
    ({"precisions": "int4", "target_loss": -1.0}, "--target-loss -1 cannot be reached"),
    ({"opset": 99}, "opset"),
    ({"precisions": "int4", "calibrate": "nowhere.txt"}, "cannot read --calibrate nowhere.txt"),
]


@pytest.mark.parametrize(("options", "message"), BAD)
def test_what_is_wrong_is_said_in_a_sentence_before_any_work(
    llama_folder, tmp_path, options, message
):
    out = tmp_path / "out"
    with pytest.raises(UsageError, match=message.replace("(", r"\(")) as caught:
        deploy(llama_folder, out, **options)
    assert len(str(caught.value).splitlines()) <= 2
    assert not list(tmp_path.iterdir())


def test_texts_say_nothing_of_what_is_heard(tmp_path):
    with pytest.raises(UsageError, match="zoo:whisper hears, and int4 is fitted to texts: leave"):
        deploy("zoo:whisper", tmp_path / "out", precisions="int4", target_size="1 MiB")


def test_a_text_that_is_too_short_to_calibrate_is_refused(llama_folder, tmp_path):
    text = tmp_path / "short.txt"
    text.write_text("One two three.")
    with pytest.raises(UsageError, match="has 4 tokens, and 512 at least are needed"):
        deploy(llama_folder, tmp_path / "out", precisions="int4", calibrate=text)
    assert not (tmp_path / "out").exists()


def test_a_model_without_a_tokenizer_is_refused_for_runtimes_that_need_one(tmp_path):
    for runtime in ("genai", "transformers.js"):
        with pytest.raises(UsageError, match=f"has no tokenizer, and {runtime} does not run"):
            deploy("zoo:llama", tmp_path / "out", runtimes=runtime)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("model", "message"),
    [("zoo:detr", "torchferry deploys decoders, encoder-decoders, encoders, image and audio"),
     ("zoo:mlp", "torchferry deploys decoders, encoder-decoders, encoders, image and audio"),
     ("zoo:nothing", "the zoo has no model 'nothing'")],
)  # fmt: skip
def test_a_model_of_another_kind_is_refused(tmp_path, model, message):
    with pytest.raises(UsageError, match=message):
        deploy(model, tmp_path / "out")
    assert not list(tmp_path.iterdir())


def test_a_folder_that_is_not_ours_is_never_replaced(deployed, llama_folder, tmp_path):
    out, _ = deployed
    with pytest.raises(UsageError, match="give --force to replace it"):
        deploy(llama_folder, out)
    (tmp_path / "thesis.tex").write_text("")
    with pytest.raises(UsageError, match=r"holds thesis\.tex, which no export wrote"):
        deploy(llama_folder, tmp_path, replace=True)
    assert (tmp_path / "thesis.tex").exists()


@pytest.mark.slow
def test_the_python_of_the_document_runs(tmp_path, monkeypatch):
    pytest.importorskip("transformers")
    monkeypatch.chdir(tmp_path)
    text = (Path(__file__).parents[2] / "docs/deploy.md").read_text("utf-8")
    code = "\n".join(re.findall(r"```python\n(.*?)```", text, re.DOTALL))
    assert "tf.deploy(" in code
    exec(compile(code, "deploy.md", "exec"), {})  # noqa: S102  (our own document)


@pytest.mark.slow
def test_a_fault_goes_beside_and_the_earlier_folder_stays(deployed, tmp_path, monkeypatch):
    """A runtime that gives other tokens, then a disk that is full."""
    from torchferry.deployer.prove import runtimes
    from torchferry.deployer.write import build

    out = tmp_path / "out"
    shutil.copytree(deployed[0], out)
    before = {p: p.read_bytes() for p in out.rglob("*") if p.is_file()}
    honest = runtimes.RUNNERS["onnxruntime"]

    def lie(request):
        told = honest.generate(request)
        return replace(
            told, tokens=[[[*row[:-1], 98 - row[-1]] for row in b] for b in told.tokens]
        )

    liar = replace(honest, generate=lie)
    monkeypatch.setitem(runtimes.RUNNERS, "onnxruntime", liar)
    report = deploy("zoo:llama", out, replace=True)
    assert not report.ok
    assert "onnxruntime does not run onnx/model.onnx as it should: batch 0" in report.problems[0]
    assert (tmp_path / "out.failed/report.html").is_file()
    assert not {p.name for p in tmp_path.iterdir()} - {"out", "out.failed"}

    def full(*_, **__):
        raise UsageError("cannot write it: No space left on device") from OSError(28, "No space")

    monkeypatch.setattr(build, "export_graph", full)
    with pytest.raises(UsageError, match=r"cannot write .*out: No space; give another folder"):
        deploy("zoo:llama", out, replace=True)
    assert not {p.name for p in tmp_path.iterdir()} - {"out", "out.failed"}
    assert {p: p.read_bytes() for p in out.rglob("*") if p.is_file()} == before
