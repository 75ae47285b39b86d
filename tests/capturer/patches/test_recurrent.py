import pytest
import torch

from families import slow_among
from torchferry.capturer import torch_export_patches
from torchferry.capturer.patches.recurrent import PATCHES
from torchferry.capturer.patching.patch import fingerprint

CASES = {
    "lstm": (lambda: torch.nn.LSTM(3, 4, 2, bidirectional=True, batch_first=True), "lstm"),
    "projection": (lambda: torch.nn.LSTM(3, 4, proj_size=2), "lstm"),
    "gru": (lambda: torch.nn.GRU(3, 4, 2, batch_first=True), "gru"),
    "tanh": (lambda: torch.nn.RNN(3, 4, bidirectional=True), "rnn_tanh"),
    "relu": (lambda: torch.nn.RNN(3, 4, nonlinearity="relu", batch_first=True), "rnn_relu"),
}


@pytest.mark.filterwarnings("ignore:LSTM with projections")
@pytest.mark.parametrize("name", slow_among(CASES, ["relu"]))
def test_the_length_stays_dynamic_and_the_node_whole(name, captured):
    make, op = CASES[name]
    torch.manual_seed(0)
    sets = [(torch.randn(*shape, 3),) for shape in ((3, 5), (2, 9), (1, 1))]
    found = captured(make(), sets)
    assert found.patches == (f"torch.ops.aten.{op}.input",)
    assert found.attempts[0].error is not None  # without it the length is fixed
    assert sum(str(n.target) == f"aten.{op}.input" for n in found.program.graph.nodes) == 1


@pytest.mark.filterwarnings("ignore:The tensor attributes")
@pytest.mark.parametrize("strict", [False, True])
def test_states_that_are_given_and_no_batch(strict):
    model = torch.nn.GRU(3, 4).eval()
    dynamic = torch.export.Dim.DYNAMIC
    with torch_export_patches() as patching, torch.no_grad():
        program = torch.export.export(
            model,
            (torch.randn(5, 3), torch.randn(1, 4)),
            dynamic_shapes=({0: dynamic}, {}),
            strict=strict,
        )
    assert patching.hit == ("torch.ops.aten.gru.input",)
    args = torch.randn(8, 3), torch.randn(1, 4)
    for want, got in zip(model(*args), program.module()(*args), strict=True):
        torch.testing.assert_close(got, want)


@pytest.mark.parametrize("patch", PATCHES, ids=lambda patch: patch.subject)
def test_upstream_is_what_the_patch_was_written_for(patch):
    assert fingerprint(patch.upstream()) in patch.fingerprints
    assert patch.needed()
