import torch
from transformers import LlamaConfig, LlamaForCausalLM

from torchferry.capturer import torch_export_patches
from torchferry.capturer.patches.rope import PATCHES
from torchferry.capturer.patching.patch import fingerprint

NEW = hasattr(LlamaConfig(), "rope_parameters")


def model(rope_type: str, **more: object) -> LlamaForCausalLM:
    torch.manual_seed(0)
    rope = {"rope_type": rope_type, "factor": 4.0, "rope_theta": 1e4, **more}
    made = LlamaForCausalLM(
        LlamaConfig(vocab_size=64, hidden_size=32, intermediate_size=48, num_hidden_layers=2,
                    num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=16,
                    **{"rope_parameters" if NEW else "rope_scaling": rope})
    ).eval()  # fmt: skip
    with torch.no_grad():  # as initialized, attention hardly looks at positions
        for name, weight in made.named_parameters():
            weight.mul_(20 if "_proj" in name or "embed" in name else 1)
    return made


def ids(batch: int, length: int) -> dict[str, torch.Tensor]:
    return {"input_ids": torch.randint(0, 64, (batch, length)),
            "attention_mask": torch.ones(batch, length, dtype=torch.int64)}  # fmt: skip


def test_frequencies_follow_the_length(captured):
    # 24 is past max_position_embeddings, where they change.
    found = captured(model("dynamic"), [ids(2, 5), ids(3, 24), ids(1, 9), ids(2, 31)])
    assert found.patches == ("transformers.modeling_rope_utils.dynamic_rope_update",)
    assert found.attempts[0].error is not None
    # The frequencies are no state of the program.
    assert not found.program.graph_signature.buffers_to_mutate


def test_it_matters():
    dynamic, inputs = model("dynamic"), ids(2, 40)
    other = model("dynamic", factor=1.0)(**inputs).logits
    assert (dynamic(**inputs).logits - other).abs().max() > 0.05


def test_other_kinds_are_left_alone():
    linear, inputs = model("linear"), ids(2, 5)
    want = linear(**inputs).logits
    with torch_export_patches() as patching:
        torch.testing.assert_close(linear(**inputs).logits, want)
    assert patching.hit == ()


def test_upstream_is_what_the_patch_was_written_for():
    (patch,) = PATCHES
    assert fingerprint(patch.upstream()) in patch.fingerprints
    assert patch.find()
