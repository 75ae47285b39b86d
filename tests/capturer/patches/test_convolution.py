import pytest
import torch
from transformers import BambaConfig, BambaForCausalLM, cache_utils

from torchferry.capturer import torch_export_patches
from torchferry.capturer.patches.convolution import PATCHES
from torchferry.capturer.patching.patch import fingerprint
from torchferry.capturer.trial.agreement import run_program

KERNEL = 4
LinearAttentionLayer = getattr(cache_utils, "LinearAttentionLayer", None)
pytestmark = pytest.mark.skipif(
    LinearAttentionLayer is None, reason="in older transformers each model has a cache of its own"
)


@pytest.fixture(scope="module")
def model() -> BambaForCausalLM:
    torch.manual_seed(0)
    return BambaForCausalLM(
        BambaConfig(vocab_size=64, hidden_size=32, intermediate_size=48, num_hidden_layers=2,
                    num_attention_heads=4, num_key_value_heads=2, attn_layer_indices=[1],
                    mamba_n_heads=8, mamba_d_head=8, mamba_d_state=8, mamba_chunk_size=4,
                    mamba_d_conv=KERNEL)
    ).eval()  # fmt: skip


def prompt(batch: int, length: int) -> dict[str, torch.Tensor]:
    torch.manual_seed(length)
    return {"input_ids": torch.randint(0, 64, (batch, length))}


@pytest.mark.slow
def test_prompts_shorter_and_longer_than_the_kernel(model, captured):
    found = captured(model, [prompt(2, 9), prompt(3, 6)])
    assert PATCHES[0].subject in found.patches
    assert found.fixed == ()
    for length in (1, 2, KERNEL, KERNEL + 1, 17):
        inputs = prompt(2, length)
        with torch.no_grad():
            want = model(**inputs)
        got = run_program(found.program, (), inputs)
        torch.testing.assert_close(got.logits, want.logits, atol=1e-5, rtol=1e-4)
        states = want.cache.layers[0].conv_states[0]
        assert states.shape[-1] == KERNEL
        torch.testing.assert_close(got.cache.layers[0].conv_states[0], states)


@pytest.mark.parametrize("length", [1, KERNEL, KERNEL + 3])
def test_the_kept_inputs_are_upstream_s(length):
    (patch,) = PATCHES
    given = torch.randn(2, 3, length)
    want, got = LinearAttentionLayer(), LinearAttentionLayer()
    theirs = want.update_conv_state(given, conv_kernel_size=KERNEL)
    ours = patch.replace(patch.upstream())(got, given, conv_kernel_size=KERNEL)
    assert torch.equal(got.conv_states[0], want.conv_states[0])
    assert torch.equal(ours[..., -length:], theirs[..., -length:])
    assert not ours[..., :-length].any()
    assert got.has_previous_state == want.has_previous_state


def test_known_lengths_and_later_calls_are_upstream_s():
    layer, other = LinearAttentionLayer(), LinearAttentionLayer()
    with torch_export_patches() as patching:
        for given in (torch.randn(2, 3, 2), torch.randn(2, 3, 1)):
            ours = layer.update_conv_state(given, conv_kernel_size=KERNEL)
            assert torch.equal(ours, other.update_conv_state(given, conv_kernel_size=KERNEL))
    assert patching.hit == ()


def test_upstream_is_what_the_patch_was_written_for():
    (patch,) = PATCHES
    assert fingerprint(patch.upstream()) in patch.fingerprints
