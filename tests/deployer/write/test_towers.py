"""Models of two towers: what their graph gives."""

import json

import pytest
import torch

import torchferry as tf
from deployer_folders import save_family
from torchferry.deployer import deploy
from torchferry.deployer.prove.runtimes import RUNNERS
from torchferry.deployer.write.towers import TwoTowers
from torchferry.zoo.catalogue import build


@pytest.mark.parametrize("name", ["clip", "siglip"])
def test_vectors_and_logits_are_those_of_the_model(name):
    entry = build(name)
    for fed in entry.input_sets:
        with torch.no_grad():
            outputs, wanted = TwoTowers(entry.model)(**fed), entry.model(**fed)
        assert [*outputs] == ["logits_per_image", "logits_per_text", "text_embeds", "image_embeds"]
        for key, x in outputs.items():
            assert torch.equal(x, wanted[key])


@pytest.mark.slow
@pytest.mark.parametrize("name", ["clip", "siglip"])
def test_two_towers_give_vectors_and_logits(name, tmp_path):
    transformers = pytest.importorskip("transformers")
    folder, out = save_family(name, tmp_path / "model", 99), tmp_path / "out"
    if name == "siglip":  # as its own tokenizer
        path = folder / "tokenizer_config.json"
        settings = json.loads(path.read_text()) | {"model_input_names": ["input_ids"]}
        path.write_text(json.dumps(settings))
    runtimes = [n for n in ("onnxruntime", "optimum", "transformers.js") if RUNNERS[n].installed()]
    precisions = "fp32,int8" if name == "clip" else "fp32"
    report = deploy(folder, out, runtimes=runtimes, precisions=precisions)
    assert report.ok, report.problems
    assert all(run["same"] for run in report.data["runs"])
    ours, theirs = tf.load(out), transformers.AutoModel.from_pretrained(folder).eval()
    draw = torch.Generator().manual_seed(5)
    for texts, images in ((1, 1), (5, 2)):
        inputs = {"input_ids": torch.randint(3, 90, (texts, 8), generator=draw),
                  "pixel_values": torch.randn(images, 3, 24, 24, generator=draw)}  # fmt: skip
        if name == "clip":
            inputs["attention_mask"] = torch.ones_like(inputs["input_ids"])
        with torch.no_grad():
            wanted = theirs(**inputs)
        got = ours(**inputs)
        assert [*got] == ["logits_per_image", "logits_per_text", "text_embeds", "image_embeds"]
        for key, x in got.items():
            assert tf.max_diff(wanted[key], x).abs < 1e-4
    assert "zero-shot-image-classification" in (out / "README.md").read_text()
