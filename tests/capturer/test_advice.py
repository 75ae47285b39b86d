import pytest

from torchferry.capturer.advice import advise

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
        ("return f(x)", GUARD, "torch._check"),
    ],
)  # fmt: skip
def test_each_construct_has_its_rewrite(code, error, want):
    assert want in advise(f"/a/model.py:12: {code}", error).rewrite


def test_anything_else():
    assert advise(None, None).reason == "it failed"
    assert advise("/a/m.py:1: if x.shape[0] > 2:", ValueError("no good")).reason == "it failed"
