import logging

import pytest
import torch

from torchferry.converter.torch_onnx import Flat, export_module, export_script
from torchferry.errors import ConversionError

ATEN = torch.library.Library("ferrytest", "DEF")
ATEN.define("mystery(Tensor x) -> Tensor")
ATEN.impl("mystery", lambda x: x.clone(), "CompositeExplicitAutograd")


class Inner(torch.nn.Module):
    def forward(self, x):
        return torch.ops.ferrytest.mystery(x)  # mystery


class Singular(torch.nn.Module):
    def forward(self, x):
        return torch.linalg.svd(x)[1]  # svd


class Decides(torch.nn.Module):
    def forward(self, x):
        return x + 1 if x.sum() > 0 else x


@pytest.mark.parametrize("model", [Decides(), Singular(), Inner()], ids=type)
def test_nothing_is_printed_by_a_failure(model, capfd):
    with pytest.raises(ConversionError, match=r"^torch\.onnx\.export failed: "):
        export_module(model, (torch.ones(2, 2),), {}, None, 20)
    assert capfd.readouterr() == ("", "")


def test_logging_is_as_before():
    names = ("torch", "torch.onnx", "")
    before = [[(h, h.level) for h in logging.getLogger(name).handlers] for name in names]
    with pytest.raises(ConversionError):
        export_module(Inner(), (torch.ones(2),), {}, None, 20)
    after = [[(h, h.level) for h in logging.getLogger(name).handlers] for name in names]
    assert before == after


def test_an_exported_program_is_flattened_too():
    program = torch.export.export(torch.nn.Linear(4, 3), (torch.ones(2, 4),))
    for inner in (program.module(), torch.nn.Sequential(program.module(), torch.nn.Dropout())):
        flat = Flat(inner, ((torch.ones(2, 4),), {}))
        assert [part.training for part in flat.train(False).modules() if part.training] == []
        model = export_script(flat, ["x"], {}, 20)
        assert len(model.graph.outputs) == 1
