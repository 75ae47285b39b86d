from __future__ import annotations

import sys
from typing import Any

import pytest
import torch

from torchferry.errors import UsageError
from torchferry.values import flatten
from torchferry.zoo import catalogue
from torchferry.zoo.catalogue import build, families, names, rows, variants
from torchferry.zoo.families import FAMILIES, GROUPS
from torchferry.zoo.family import Family


def sizes(inputs: dict[str, Any]) -> list[tuple[int, ...]]:
    leaves, _ = flatten(inputs)
    return [tuple(leaf.shape) for _, leaf in leaves if isinstance(leaf, torch.Tensor)]


# a vision transformer takes square images
@pytest.mark.parametrize("name", sorted(set(names()) - {"tiny-vit"}))
def test_the_first_set_has_no_equal_sizes_by_accident(name: str) -> None:
    for shape in sizes(build(name).input_sets[0]):
        assert len(set(shape)) == len(shape)


def test_every_way_to_name_a_variant_gives_the_same() -> None:
    asked = [
        build("bert/fill-mask"), build("bert", task="fill-mask"),
        build("bert/fill-mask/plain"), build("bert", "fill-mask", "plain"),
        build("bert/fill-mask", state="plain"),
    ]  # fmt: skip
    assert [type(entry.model).__name__ for entry in asked] == ["BertForMaskedLM"] * 5
    assert {(entry.task, entry.state) for entry in asked} == {("fill-mask", "plain")}
    assert asked[0].name == asked[1].name == "bert/fill-mask"
    first, *others = [entry.input_sets[0]["input_ids"] for entry in asked]
    assert all(torch.equal(first, other) for other in others)
    weights = [entry.model.state_dict()["cls.predictions.bias"] for entry in asked]
    assert torch.equal(weights[0], weights[1])


def test_the_default_task_may_be_left_out() -> None:
    short = build("t5/encoder")
    assert (short.task, short.state) == ("text2text-generation", "encoder")
    assert short.states == ("decode", "prefill", "encoder")
    assert build("llama").state == "decode"
    assert build("llama", state="no-cache").input_sets[0]["use_cache"] is False
    assert "decode-full-window" in build("mistral").states
    assert "decode-full-window" not in build("llama").states


def test_all_states_of_a_task_share_their_weights() -> None:
    decode, prefill = build("llama"), build("llama/prefill")
    ours, theirs = decode.model.state_dict(), prefill.model.state_dict()
    assert all(torch.equal(value, theirs[name]) for name, value in ours.items())


@pytest.mark.parametrize(
    ("name", "options", "match"),
    [
        ("tiny_lm", {}, "no model 'tiny_lm'; did you mean tiny-llm"),
        ("GPT-OSS", {}, "did you mean .*gpt_oss"),
        ("", {}, "no model ''"),
        ("xyzzy", {}, r"It has: lstm, mlp, tiny-bert.*and \d\d families"),
        ("llama/prefil", {}, "zoo:llama has no 'prefil'; did you mean prefill"),
        ("llama/fill-mask", {}, "has no 'fill-mask'.*It has: decode.*text-generation"),
        ("llama/fill-mask/plain", {}, "has no 'fill-mask'.*It has: text-generation$"),
        ("llama/text-generation/x", {}, "has no 'x'. It has: decode, prefill"),
        ("llama/text-generation/decode/x", {}, "is no FAMILY, FAMILY/TASK or FAMILY/TASK/STATE"),
        ("llama/", {}, "is no FAMILY"),
        ("llama/prefill", {"task": "fill-mask"}, "names its task, and 'fill-mask' was given too"),
        ("mlp/forward", {}, "zoo:mlp has no 'forward'. It has one form only"),
        ("tiny-llm", {"state": "prefill"}, "zoo:tiny-llm has no 'prefill'. It has one form"),
    ],
)
def test_a_wrong_name_says_what_there_is(name: str, options: dict[str, str], match: str) -> None:
    with pytest.raises(UsageError, match=match) as raised:
        build(name, **options)
    assert len(str(raised.value).splitlines()) <= 12


def test_families_and_variants() -> None:
    assert len(families()) == len(FAMILIES) == sum(len(table) for table in GROUPS.values())
    assert "sam" in families("vision")
    assert variants("unet") == ["unet"]
    assert variants("llama")[0] == "llama/text-generation/decode"
    with pytest.raises(UsageError, match="no kind of model is called 'dekoder'"):
        families("dekoder")
    with pytest.raises(UsageError, match="no model 'lama'; did you mean llama"):
        variants("lama")


def test_a_family_that_transformers_is_too_old_for_is_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(row: Family, task: str) -> Any:
        if row.name == "llama":
            raise UsageError("too old")
        return torch.nn.Linear(2, 2)

    monkeypatch.setattr("torchferry.zoo.catalogue.make_untouched", refuse)
    told = {row.family: row for row in rows()}
    assert told["llama"].model_class.startswith("not with transformers ")
    assert (told["llama"].parameters, told["llama"].tasks[0]) == (0, "text-generation")
    assert told["bert"].model_class == "Linear"


def test_rows_tell_of_every_family() -> None:
    told = {row.family: row for row in rows()}
    assert list(told) == list(FAMILIES)
    llama = told["llama"]
    assert (llama.group, llama.model_class) == ("decoder", "LlamaForCausalLM")
    assert llama.tasks == ("text-generation",)
    assert llama.states == ("decode", "prefill", "prefill-empty-cache", "no-cache")
    assert told["mlp"] == catalogue.FamilyRow(
        "mlp", "everyday", "Mlp", ("forward",), ("plain",), 740
    )
    counted = sum(p.numel() for p in build("clip").model.parameters())
    assert told["clip"].parameters == counted
    assert all(row.parameters < 100_000 for row in told.values())


def test_the_global_generator_is_left_alone() -> None:
    before = torch.get_rng_state()
    build("mamba")
    build("lstm")
    rows()
    assert torch.equal(torch.get_rng_state(), before)


def test_plain_models_need_no_transformers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "transformers", None)
    assert build("mlp").input_sets
    assert build("unet").input_sets
    for name in ("tiny-bert", "llama"):
        with pytest.raises(UsageError, match=rf"zoo:{name} needs.*torchferry\[hf\]"):
            build(name)
