"""EnCodec's convolutions pad by what follows from a size."""

import pytest
import torch
from transformers.models.encodec.modeling_encodec import EncodecConfig, EncodecConv1d

from torchferry.capturer import capture
from torchferry.capturer.patches.codec import PATCHES
from torchferry.errors import CaptureError
from torchferry.observer import Observation


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize(("stride", "mode"), [(4, "reflect"), (3, "constant")])
def test_it_is_right_at_any_length(captured, causal, stride, mode):
    torch.manual_seed(0)
    config = EncodecConfig(use_causal_conv=causal, pad_mode=mode, norm_type="weight_norm")
    model = EncodecConv1d(config, 2, 3, 2 * stride, stride).eval()
    sets = [(torch.rand(b, 2, n),) for b, n in ((2, 40), (3, 53))]
    if mode == "reflect":
        with pytest.raises(CaptureError, match="the values of a tensor decide"):
            capture(model, Observation.from_inputs(model, sets), patch=False, rewrite=False)
    found = captured(model, sets)
    assert len(found.patches) >= 2 * (mode == "reflect")
    for length in (9, 41, 60):
        x = torch.rand(1, 2, length)
        torch.testing.assert_close(found.program.module()(hidden_states=x), model(x))


def test_upstream_is_the_code_they_were_written_for():
    assert [one.misfit() for one in PATCHES if "encodec" in one.subject] == [None, None]
