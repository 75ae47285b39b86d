"""Vision-language models in three parts: what they compute, and that genai runs them."""

import json

import pytest
import torch

import torchferry as tf
from deployer_folders import save_family, save_image_words
from torchferry.deployer import deploy
from torchferry.deployer.kind import VISION_LANGUAGE, kind_of
from torchferry.deployer.prove.corpus import pictures
from torchferry.deployer.prove.runtimes import RUNNERS
from torchferry.deployer.write.vision import MergedEmbeddings, split_vision
from torchferry.errors import FerryError, UsageError
from torchferry.sources.source import load_source
from torchferry.zoo.catalogue import build
from torchferry.zoo.inputs.multimodal import ANSWERING


@pytest.mark.parametrize("name", ["llava", "qwen2_5_vl"])
def test_the_parts_compute_what_the_whole_does(name):
    source = load_source(f"zoo:{name}/prefill", dtype="fp32")
    parts = split_vision(source)
    assert [*parts] == ["model", "embedding", "vision"]
    vision, embedding = parts["vision"].model, parts["embedding"].model
    with torch.no_grad():
        for _, fed in source.input_sets:
            images = {n: x for n, x in fed.items() if n in ("pixel_values", "image_grid_thw")}
            features = vision(**images)["image_features"]
            embeds = embedding(fed["input_ids"], features)["inputs_embeds"]
            rest = {n: fed[n] for n in ("attention_mask", "position_ids")}
            got = source.model(inputs_embeds=embeds, **rest).logits
            torch.testing.assert_close(got, source.model(**fed).logits)


def test_other_inputs_are_refused():
    with pytest.raises(UsageError, match="zoo:llava has inputs that are no prompts with images"):
        split_vision(load_source("zoo:llava", dtype="fp32"))


def test_a_token_without_a_feature_is_out_of_range_and_a_word_if_there_are_no_images():
    model = build("llava").model
    merged, token = MergedEmbeddings(model), model.config.image_token_id
    ids = torch.tensor([[3, token, token], [token, 4, 5]])
    words = model.get_input_embeddings()(ids)
    features = torch.randn(3, 32)
    got = merged(ids, features)["inputs_embeds"]
    torch.testing.assert_close(got[0, 1:], features[:2])
    torch.testing.assert_close(got[1, 0], features[2])
    torch.testing.assert_close(got[1, 1:], words[1, 1:])
    torch.testing.assert_close(merged(ids, features[:0])["inputs_embeds"], words)
    for count in (1, 2):
        with pytest.raises(IndexError):
            merged(ids, features[:count])


def test_the_kinds_are_told_apart():
    assert {kind_of(build(name).model, name) for name in ANSWERING} == {"vision-language"}
    assert {kind_of(build(name).model, name) for name in ("clip", "siglip")} == {"dual-encoder"}
    assert {*VISION_LANGUAGE} == {*ANSWERING}


@pytest.mark.slow
def test_three_graphs_and_how_genai_finds_them(deployed_llava):
    _, out, report = deployed_llava
    assert report.ok, report.problems
    assert {path.name for path in (out / "onnx").glob("*.onnx")} == {
        f"{part}{end}.onnx" for part in ("vision_encoder", "embedding", "model")
        for end in ("", "_quantized")
    }  # fmt: skip
    settings = json.loads((out / "genai_config.json").read_text())["model"]
    assert settings["type"] == "phi3v"
    assert settings["vision"]["filename"] == "onnx/vision_encoder.onnx"
    assert settings["embedding"]["outputs"] == {"inputs_embeds": "inputs_embeds"}
    assert settings["decoder"]["inputs"]["inputs_embeds"] == "inputs_embeds"
    runs = [run for run in report.data["runs"] if run["version"]]
    assert all(run["same"] for run in runs)
    assert report.data["agreements"]["fp32"]["kl"] < 1e-6
    bits = next(g["bits"] for g in report.data["graphs"] if g["name"] == "int8")
    assert any("vision_tower" in name for name in bits)
    assert bits["embedding.weight"] == 8


@pytest.mark.slow
def test_the_card_says_how_genai_is_given_images(deployed_llava):
    _, out, _ = deployed_llava
    card = (out / "README.md").read_text()
    assert "vision_encoder" in card
    assert "set_inputs" in card


@pytest.mark.slow
@pytest.mark.parametrize("name", ["qwen2_vl", "qwen2_5_vl"])
def test_qwen_sees_images_of_other_sizes_in_genai_too(name, tmp_path):
    runtimes = [n for n in ("onnxruntime", "genai") if RUNNERS[n].installed()]
    folder = save_family(name, tmp_path / "model")
    precisions = "fp32,fp16,int8,int4" if name == "qwen2_5_vl" else "fp32"
    report = deploy(folder, tmp_path / "out", runtimes=runtimes, precisions=precisions)
    assert report.ok, report.problems
    assert all(run["same"] for run in report.data["runs"])
    transformers = pytest.importorskip("transformers")
    ours = tf.load(tmp_path / "out", precision="fp32")
    theirs = transformers.AutoModelForImageTextToText.from_pretrained(folder).eval()
    _, three = pictures(theirs)
    asked = {"do_sample": False, "max_new_tokens": 6, "min_new_tokens": 6, "pad_token_id": 0}
    for options in ({}, {"num_beams": 2}):
        wanted = theirs.generate(**three.arguments, **asked, **options)
        assert ours.generate(**three.arguments, **asked, **options).tolist() == wanted.tolist()
    plain = {n: x for n, x in three.arguments.items() if n != "mm_token_type_ids"}
    with torch.no_grad():
        theirs.model.rope_deltas = None
        wanted = theirs(**three.arguments).logits
    assert tf.max_diff(wanted, ours(**plain).logits).abs < 1e-4


@pytest.mark.slow
def test_genai_reads_an_image_file_as_transformers_does(tmp_path):
    """Its own processor, from the file that was written for it: pixels, and tokens of PyTorch."""
    genai = pytest.importorskip("onnxruntime_genai")
    transformers = pytest.importorskip("transformers")
    image = pytest.importorskip("PIL.Image")
    processors = [
        getattr(transformers, f"Qwen2VLImageProcessor{end}", None) for end in ("Pil", "")
    ]
    made = next(one for one in processors if one is not None)
    folder, out = save_image_words(tmp_path / "model"), tmp_path / "out"
    sides = {"patch_size": 4, "merge_size": 2, "temporal_patch_size": 2}
    made(min_pixels=1024, max_pixels=16384, **sides).save_pretrained(folder)
    report = deploy(folder, out, runtimes="genai", precisions="fp32")
    assert report.ok, report.problems
    colours = torch.rand(37, 53, 3, generator=torch.Generator().manual_seed(0)) * 255
    image.fromarray(colours.to(torch.uint8).numpy()).save(tmp_path / "image.png")
    model = genai.Model(str(out))
    prompt = "Say <|vision_start|><|image_pad|><|vision_end|> what it is"
    inputs = model.create_multimodal_processor()(
        prompt, images=genai.Images.open(str(tmp_path / "image.png"))
    )
    names = ("input_ids", "pixel_values", "image_grid_thw")
    ids, pixels, grid = (torch.from_numpy(inputs[name].as_numpy().copy()) for name in names)
    wanted = made.from_pretrained(out)(image.open(tmp_path / "image.png"), return_tensors="pt")
    assert grid.tolist() == wanted["image_grid_thw"].tolist()
    assert tf.max_diff(wanted["pixel_values"], pixels).abs < 1e-5
    length = ids.shape[1]
    params = genai.GeneratorParams(model)
    params.set_search_options(max_length=length + 8, min_length=length + 8, do_sample=False)
    generator = genai.Generator(model, params)
    generator.set_inputs(inputs)
    while not generator.is_done():
        generator.generate_next_token()
    theirs = transformers.AutoModelForImageTextToText.from_pretrained(folder).eval()
    ids = ids.long()
    tokens = theirs.generate(
        input_ids=ids, pixel_values=pixels, image_grid_thw=grid, do_sample=False,
        mm_token_type_ids=(ids == theirs.config.image_token_id).int(), max_new_tokens=8,
        min_new_tokens=8, attention_mask=torch.ones_like(ids),
    )  # fmt: skip
    assert generator.get_sequence(0).tolist() == tokens[0].tolist()


def test_a_model_of_text_and_images_that_is_not_known_is_refused(tmp_path):
    transformers = pytest.importorskip("transformers")
    sizes = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 1,
             "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8}  # fmt: skip
    config = transformers.Gemma3Config(
        text_config={**sizes, "vocab_size": 99},
        vision_config={"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 1,
                       "num_attention_heads": 4, "image_size": 24, "patch_size": 8},
    )  # fmt: skip
    transformers.Gemma3ForConditionalGeneration(config).save_pretrained(tmp_path / "model")
    with pytest.raises(FerryError, match="no inputs are known for Gemma3ForConditionalGeneration"):
        deploy(tmp_path / "model", tmp_path / "out", runtimes="genai")
    assert not (tmp_path / "out").exists()
