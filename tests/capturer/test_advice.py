import pytest
import torch

from torchferry.capturer import capture
from torchferry.capturer.advice import advise
from torchferry.errors import CaptureError
from torchferry.observer import Observation

GUARD = RuntimeError("Could not guard on data-dependent expression Eq(u0, 1)")


@pytest.mark.parametrize(
    ("code", "error", "want"),
    [
        ("for e in expert_hit:", GUARD, "Loop over all experts"),
        ("for _ in range(n):", GUARD, "torch.while_loop"),
        ("while x.sum() > 0:", GUARD, "while_loop"),
        ("if mask.sum() != n:", GUARD, "torch.cond"),
        ("y = a if x.any() else b", GUARD, "torch.cond"),
        ("n = lengths.max().item()", GUARD, "Select with a mask"),
        ("return x[:, :n]", GUARD, "Select with a mask"),
        ("for t, h, w in grid_thw.tolist():", GUARD, "give that as an input"),
        ("y, _ = self.rnn(packed)", TypeError("size failed to unpack"), "padded tensor"),
        ("return Odd(x)", ValueError("Found Odd in output, which is not a known type"),
         "values.kinds.register"),
        ("x = x * k", TypeError("holds a int: only tensors can come out of torch.cond and loops"),
         "Make it a tensor on both sides"),
        ("", AttributeError("quantized.LinearPackedParamsBase has no field"), "as it was before"),
        ("y = table.get(x.shape[0])", TypeError("unhashable type: non-nested SymInt"),
         "Write the choice with if"),
        ("y = [a, b][x.shape[0] == 1]",
         TypeError("list indices must be integers or slices, not SymBool"), "a if test else b"),
        ("return f(x)", GUARD, "torch._check"),
    ],
)  # fmt: skip
def test_each_construct_has_its_rewrite(code, error, want):
    assert want in advise(f"/a/model.py:12: {code}", error).rewrite


def test_anything_else():
    assert advise(None, None).reason == "it failed"
    assert advise("/a/m.py:1: if x.shape[0] > 2:", ValueError("no good")).reason == "it failed"


def test_what_torch_jit_made_is_told_as_such():
    model = torch.nn.Sequential(torch.jit.script(torch.nn.ReLU()), torch.nn.Linear(3, 3))
    with pytest.raises(CaptureError, match=r"a module of torch\.jit is in the model"):
        capture(model, Observation.from_inputs(model, [(torch.ones(n, 3),) for n in (2, 4)]))


def test_a_packed_sequence_is_told_whatever_its_layer_is_called():
    class Packs(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = torch.nn.LSTM(3, 2, batch_first=True)

        def forward(self, x, lengths):
            packed = torch.nn.utils.rnn.pack_padded_sequence(x, lengths, True, False)
            return self.layer(packed)[1]

    sets = [(torch.randn(n, 4, 3), torch.tensor([4] * n)) for n in (2, 3)]
    with pytest.raises(CaptureError, match="Run the recurrent layer on the padded tensor"):
        capture(Packs(), Observation.from_inputs(Packs(), sets), patch=False)


@pytest.mark.parametrize(
    ("file", "says"),
    [
        ("/env/site-packages/transformers/models/bert.py", 'attn_implementation="eager"'),
        ("/env/site-packages/torchvision/ops/boxes.py", "in the package torchvision"),
        (torch.__file__, "in the package torch"),
    ],
)
def test_nobody_is_told_to_change_a_line_of_a_library(file, says):
    for code, error in (("if mask.sum() != n:", GUARD), ("x = f(y)", ValueError("no"))):
        rewrite = advise(f"{file}:12: {code}", error).rewrite
        assert says in rewrite
        assert "custom_patches" in rewrite
        assert "Change that line" not in rewrite
        assert "Write it" not in rewrite
    packed = advise(f"{file}:1: y = self.rnn(p)", TypeError("size failed to unpack")).rewrite
    assert packed.startswith("Run the recurrent layer on the padded tensor")
