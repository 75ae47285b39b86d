import sys
from importlib.util import find_spec

import pytest
import torch

from torchferry.capturer import accept_aliases
from torchferry.capturer.patching.huggingface import borrowed_patches, import_owners


class New(torch.nn.Module):
    def forward(self, input_ids, cache=None, **kwargs):
        return input_ids


class Old(torch.nn.Module):
    def forward(self, input_ids, past_key_values=None):
        return input_ids


class Both(torch.nn.Module):
    def forward(self, cache, past_key_values):
        return cache


class Neither(torch.nn.Module):
    def forward(self, **kwargs):
        return kwargs


def test_a_name_that_forward_does_not_have_becomes_the_one_it_has():
    assert accept_aliases(New(), {"past_key_values": 1, "input_ids": 2}) == {
        "cache": 1, "input_ids": 2,
    }  # fmt: skip
    assert accept_aliases(Old(), {"cache": 1}) == {"past_key_values": 1}


def test_the_order_is_kept_and_the_given_mapping_too():
    given = {"past_key_values": 1, "input_ids": 2}
    assert list(accept_aliases(New(), given)) == ["cache", "input_ids"]
    assert list(given) == ["past_key_values", "input_ids"]


def test_what_fits_already_is_left():
    for model, given in (
        (New(), {"cache": 1, "other": 2}),
        (Old(), {"past_key_values": 1}),
        (Both(), {"cache": 1}),
        (Both(), {"cache": 1, "past_key_values": 2}),
        (Neither(), {"past_key_values": 1}),
        (New(), {"cache": 1, "past_key_values": 2}),
    ):
        assert accept_aliases(model, given) == given


has_exporters = pytest.mark.skipif(
    find_spec("transformers.exporters") is None, reason="older transformers have no exporter"
)


@has_exporters
def test_the_patches_of_the_installed_transformers_are_used_but_for_two():
    import transformers  # noqa: F401  (nothing is borrowed before it is imported)

    borrowed = borrowed_patches()
    subjects = [patch.subject for patch in borrowed]
    assert "torch.nn.functional.scaled_dot_product_attention" in subjects
    assert not [name for name in subjects if "DynamicSlidingWindowLayer" in name]
    # Images of two sizes in one call would be wrong, and no ONNX model can check them.
    assert not [name for name in subjects if "VisionAttention" in name]
    assert all(patch.why for patch in borrowed)


@has_exporters
def test_attention_with_a_known_batch_is_not_touched():
    (patch,) = (p for p in borrowed_patches() if "scaled_dot_product" in p.subject)
    assert patch.acts is not None
    assert not patch.acts(torch.ones(2, 3, 4), None, None)


def test_what_a_name_leads_into_is_imported():
    import_owners([
        "torch.nn.nowhere.function",
        "transformers.models.nowhere.modeling_nowhere.Model.forward",
        "transformers.models.biogpt.modeling_biogpt.BioGptModel.forward",
    ])  # fmt: skip
    assert "transformers.models.biogpt.modeling_biogpt" in sys.modules
    assert "transformers.models.nowhere" not in sys.modules
