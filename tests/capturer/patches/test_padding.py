import importlib

import pytest
import torch
from transformers import SwinConfig, SwinModel

from torchferry.capturer import capture, torch_export_patches
from torchferry.capturer.patches.padding import PATCHES
from torchferry.capturer.patching.patch import fingerprint
from torchferry.observer import Observation


class AsOnnx(torch.fx.Interpreter):
    """Runs a graph with views as reshapes, as a graph without strides has them."""

    def call_function(self, target, args, kwargs):
        if target is torch.ops.aten.view.default:
            target = torch.ops.aten.reshape.default
        return super().call_function(target, args, kwargs)


@pytest.mark.slow
def test_images_of_sizes_that_need_padding_and_that_do_not():
    torch.manual_seed(0)
    model = SwinModel(
        SwinConfig(image_size=32, embed_dim=8, depths=[1, 1], num_heads=[1, 2], window_size=4,
                   mlp_ratio=1.0)
    ).eval()  # fmt: skip
    sets = [((), {"pixel_values": torch.randn(b, 3, h, w)})
            for b, h, w in ((2, 48, 80), (3, 64, 48))]  # fmt: skip
    found = capture(model, Observation.from_inputs(model, sets))
    assert found.fixed == ()
    assert sum("maybe_pad" in subject for subject in found.patches) == 3
    program = found.program.module(check_guards=False)
    # 56 and 36 are no multiples of twice a patch, 50 and 38 of patches.
    for size in ((1, 48, 80), (2, 56, 36), (2, 50, 38)):
        image = torch.randn(size[0], 3, *size[1:])
        with torch.no_grad():
            want = model(pixel_values=image).last_hidden_state
            got = AsOnnx(program).run(image)
        torch.testing.assert_close(torch.utils._pytree.tree_leaves(got)[0], want)


@pytest.mark.parametrize("patch", PATCHES, ids=lambda patch: patch.subject)
def test_upstream_is_what_the_patch_was_written_for(patch):
    importlib.import_module(patch.subject.rpartition(".")[0].rpartition(".")[0])
    assert fingerprint(patch.upstream()) in patch.fingerprints


def test_nothing_else_is_padded():
    image = torch.randn(1, 3, 9, 10)
    config = SwinConfig(image_size=8, embed_dim=8, depths=[1], num_heads=[1], window_size=4)
    patches = SwinModel(config).embeddings.patch_embeddings
    want = patches.maybe_pad(image, 9, 10)
    with torch_export_patches() as patching:
        torch.testing.assert_close(patches.maybe_pad(image, 9, 10), want)
        assert patches.maybe_pad(image[:, :, :8, :8], 8, 8).shape == (1, 3, 8, 8)
    assert want.shape == (1, 3, 12, 12)
    assert patching.hit == (
        "transformers.models.swin.modeling_swin.SwinPatchEmbeddings.maybe_pad",
    )
