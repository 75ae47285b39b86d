import importlib

import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM

from torchferry.capturer.patches.selective_scan import PATCHES, selective_scan
from torchferry.capturer.patching.patch import fingerprint

UPSTREAM = importlib.import_module("transformers.models.mamba.modeling_mamba")
pytestmark = pytest.mark.skipif(
    not hasattr(UPSTREAM, "mamba_selective_scan"), reason="older transformers have another loop"
)
SIZES = {"vocab_size": 64, "hidden_size": 16, "num_hidden_layers": 1, "state_size": 4,
         "time_step_rank": 3, "use_mambapy": False, "use_associative_scan": False}  # fmt: skip


def arguments(time: int, dtype: torch.dtype = torch.float32) -> list[torch.Tensor]:
    torch.manual_seed(time)
    shapes = [(2, 6, time), (2, 6, time), (6, 4), (2, 4, time), (2, 4, time)]
    x, dt, a, b, c = (torch.randn(shape, dtype=dtype) for shape in shapes)
    return [x, dt.abs(), -a.abs(), b, c]


@pytest.mark.parametrize("time", [1, 2, 7])
@pytest.mark.parametrize("whole", [False, True])
def test_it_computes_what_upstream_computes(time, whole):
    more = {"D": torch.randn(6), "z": torch.randn(2, 6, time), "delta_softplus": True,
            "delta_bias": torch.randn(6)} if whole else {}  # fmt: skip
    given = arguments(time)
    want = UPSTREAM.mamba_selective_scan(*given, return_last_state=True, **more)
    got = selective_scan(*given, return_last_state=True, **more)
    for one, other in zip(want, got, strict=True):
        torch.testing.assert_close(other, one)
    alone = selective_scan(*given, **more)
    torch.testing.assert_close(alone, want[0])


@pytest.mark.slow
@pytest.mark.parametrize("name", ["mamba", "falcon_mamba"])
def test_a_prefill_of_any_length(name, captured):
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(AutoConfig.for_model(name, **SIZES))
    sets = [
        {"input_ids": torch.randint(0, 64, (batch, length)), "use_cache": False}
        for batch, length in ((2, 5), (3, 9), (1, 2))
    ]
    found = captured(model, sets)
    subject = f"transformers.models.{name}.modeling_{name}.mamba_selective_scan"
    assert found.patches == (subject,)
    assert found.attempts[0].error is not None


@pytest.mark.parametrize("patch", PATCHES, ids=lambda patch: patch.subject)
def test_upstream_is_what_the_patch_was_written_for(patch):
    importlib.import_module(patch.subject.rpartition(".")[0])
    assert patch.misfit() is None
    assert fingerprint(patch.upstream()) in patch.fingerprints
