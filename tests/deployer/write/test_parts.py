"""An encoder-decoder in three parts, each with inputs that fit."""

import pytest
import torch

from torchferry.deployer.write.parts import CrossStates, Step, split_source
from torchferry.errors import UsageError
from torchferry.sources.source import load_source


@pytest.mark.parametrize("name", ["t5", "bart", "whisper"])
def test_the_parts_compute_what_the_whole_does(name):
    source = load_source(f"zoo:{name}", dtype="fp32")
    parts = split_source(source)
    for part in parts.values():
        assert len(part.input_sets) == 3
    with torch.no_grad():
        for (_, whole), (_, fed), (_, states) in zip(
            source.input_sets, parts["step"].input_sets, parts["cross"].input_sets, strict=True
        ):
            outputs = source.model(**whole)
            got = parts["step"].model(**fed)
            torch.testing.assert_close(got["logits"], outputs.logits)
            held = parts["cross"].model(**states)["present"]
            for mine, given in zip(held, fed["past_key_values"], strict=True):
                torch.testing.assert_close(mine["encoder"], given["encoder"])
            for new, given in zip(got["present"], fed["past_key_values"], strict=True):
                length = given["decoder"]["key"].shape[2]
                assert new["decoder"]["key"].shape[2] == length + fed["input_ids"].shape[1]
    sound = name == "whisper"
    assert ("input_features" in parts["encoder"].input_sets[0][1]) == sound
    assert ("encoder_attention_mask" in parts["step"].input_sets[0][1]) != sound
    assert isinstance(parts["step"].model, Step)
    assert isinstance(parts["cross"].model, CrossStates)


def test_other_inputs_are_refused():
    with pytest.raises(UsageError, match="zoo:bart/prefill has inputs that are no steps of its"):
        split_source(load_source("zoo:bart/prefill", dtype="fp32"))
