import pytest
import torch
from torch.ao import quantization
from torch.ao.quantization.fake_quantize import FakeQuantize

from families import slow_among
from torchferry.capturer import capture, torch_export_patches
from torchferry.capturer.patches.fake_quantize import PATCHES
from torchferry.capturer.patching.patch import fingerprint
from torchferry.errors import CaptureError
from torchferry.observer import Observation

KINDS = {
    "whole": quantization.default_fake_quant,
    "channels": quantization.default_per_channel_weight_fake_quant,
    "signed": FakeQuantize.with_args(
        observer=quantization.MinMaxObserver, quant_min=-128, quant_max=127, dtype=torch.qint8
    ),
    "few bits": FakeQuantize.with_args(
        observer=quantization.MinMaxObserver, quant_min=0, quant_max=15, dtype=torch.quint8
    ),
}


class Quantized(torch.nn.Module):
    def __init__(self, make):
        super().__init__()
        self.linear = torch.nn.Linear(4, 3)
        self.fake = make()
        self.fake(self.linear.weight)

    def forward(self, x):
        return torch.nn.functional.linear(x, self.fake(self.linear.weight))


def calls(*sizes):
    torch.manual_seed(1)
    return [(torch.randn(size, 4),) for size in sizes]


@pytest.fixture(params=slow_among(KINDS, ["signed", "few bits"]))
def model(request):
    torch.manual_seed(0)
    return Quantized(KINDS[request.param]).eval()


def test_a_module_at_rest_is_captured(model, captured):
    model.apply(quantization.disable_observer)
    found = captured(model, calls(2, 5))
    assert any("quantize" in str(node.target) for node in found.program.graph.nodes)
    assert "forward" not in vars(model.fake)


def test_one_that_is_off_changes_nothing(model, captured):
    model.apply(quantization.disable_observer)
    model.apply(quantization.disable_fake_quant)
    found = captured(model, calls(2, 5))
    targets = [str(node.target) for node in found.program.graph.nodes]
    assert "aten.linear.default" in targets
    assert not any("quantize" in target for target in targets)


def test_one_that_observes_is_refused_with_what_to_do(model):
    seen = Observation.from_inputs(model, [(one, {}) for one in calls(2, 5)])
    with pytest.raises(CaptureError, match=r"still observes(.|\n)*disable_observer"):
        capture(model, seen)


@pytest.mark.filterwarnings("ignore:torch.ao.quantization is deprecated")
def test_a_model_prepared_for_training(captured):
    torch.manual_seed(0)
    trained = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.ReLU()).train()
    trained.qconfig = quantization.get_default_qat_qconfig("x86")
    trained = quantization.prepare_qat(trained)
    for (one,) in calls(5, 5, 5):
        trained(one)
    trained.apply(quantization.disable_observer)
    found = captured(trained, calls(2, 5))
    assert found.patches == (PATCHES[0].subject,)


def test_a_block_leaves_the_modules_as_they_were(model):
    model.apply(quantization.disable_observer)
    with torch_export_patches() as patching:
        assert "forward" in vars(model.fake)
        model(torch.ones(1, 4))
    assert patching.hit == (PATCHES[0].subject,)
    assert "forward" not in vars(model.fake)


def test_upstream_is_what_the_patch_was_written_for():
    (patch,) = PATCHES
    assert fingerprint(patch.upstream()) in patch.fingerprints
