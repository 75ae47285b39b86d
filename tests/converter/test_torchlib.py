"""The seam to onnxscript's lowerings."""

import pytest
import torch
from op_case import export, run

from torchferry.converter.torchlib import borrowed
from torchferry.converter.translate import translate
from torchferry.errors import LoweringFailed
from torchferry.seams import torch_onnx

aten = torch.ops.aten


def test_what_is_borrowed():
    assert borrowed(aten.add.Tensor)
    assert not borrowed(aten.linalg_eigvals.default)


def _without(target, monkeypatch):
    """As if we had no lowering of our own."""
    from torchferry.converter import driver

    ours = driver.find_lowering
    monkeypatch.setattr(
        driver,
        "find_lowering",
        lambda found, **kind: None if found is target else ours(found, **kind),
    )


@pytest.mark.parametrize(
    ("function", "target"),
    [
        (torch.nn.functional.silu, aten.silu.default),
        (lambda x: torch.add(x, x, alpha=2), aten.add.Tensor),
        (lambda x: x.sum(dim=-1, keepdim=True), aten.sum.dim_IntList),
        (lambda x: torch.cat([x, x + 1], dim=0), aten.cat.default),
        (lambda x: x.view(x.shape[0], 1, 3), aten.view.default),
        (lambda x: x.split([1, 2], dim=1)[1], aten.split_with_sizes.default),
    ],
)
def test_what_onnxscript_writes_computes_the_same(function, target, monkeypatch):
    _without(target, monkeypatch)
    sets = [(torch.randn(2, 3),), (torch.randn(5, 3),)]
    program = export(function, *sets)
    assert target in {node.target for node in program.graph.nodes}
    model = translate(program, 20)
    for inputs in sets:
        (got,) = run(model, inputs)
        assert torch.allclose(got, function(*inputs), atol=1e-6)


def test_what_onnxscript_writes_in_another_shape_is_refused(monkeypatch):
    from onnxscript import opset18

    program = export(lambda x: aten.copy(x, x[:1]), (torch.randn(2, 3),))
    target = aten.copy.default
    assert target in {node.target for node in program.graph.nodes}
    _without(target, monkeypatch)
    copied = lambda x, src: opset18.Identity(src)  # noqa: E731  (as a lowering that forgets)
    monkeypatch.setattr(torch_onnx, "_dispatch", lambda node, registry: (copied, ""))
    with pytest.raises(
        LoweringFailed, match=r"its shape would be \[1,3\], and torch has \[2, 3\]"
    ):
        translate(program, 20)


def test_complex_numbers_without_a_lowering_are_called_so():
    program = export(torch.atanh, (torch.randn(3, dtype=torch.complex64),))
    with pytest.raises(LoweringFailed, match=r"no lowering for complex numbers: .*view_as_real"):
        translate(program, 20)
