"""torchvision: detectors with their lists of images and dictionaries of boxes."""

import pytest
import torch

import torchferry

ops = pytest.importorskip("torchvision.ops", exc_type=ImportError)
detection = pytest.importorskip("torchvision.models.detection", exc_type=ImportError)


class Keeps(torch.nn.Module):
    def forward(self, corners, scores, classes):
        boxes = torch.cat([corners, corners + 1 + corners.abs()], 1)
        return ops.batched_nms(boxes, scores, classes, 0.5)


def boxes(count):
    torch.manual_seed(count)
    return torch.rand(count, 2) * 9, torch.rand(count), torch.randint(0, 3, (count,))


def test_batched_nms_of_any_number_of_boxes():
    model = Keeps()
    program = torchferry.export(model, [boxes(7), boxes(11)], progress=False)
    assert program.report.ok, program.report.problems
    for count in (1, 40, 3000):  # from 1001 on upstream goes class by class
        torch.testing.assert_close(program(*boxes(count)), model(*boxes(count)))


def test_ssdlite():
    torch.manual_seed(0)
    model = detection.ssdlite320_mobilenet_v3_large(
        weights=None, weights_backbone=None, num_classes=3
    ).eval()
    for module in model.modules():  # boxes and scores of their own
        if isinstance(module, torch.nn.Conv2d):
            torch.nn.init.kaiming_normal_(module.weight, nonlinearity="linear")
    sets = [([torch.rand(3, h, w)],) for h, w in ((96, 64), (80, 112))]
    program = torchferry.export(model, sets, progress=False)
    assert program.report.ok, program.report.problems
    image = [torch.rand(3, 100, 72)]
    with torch.no_grad():
        (want,) = model(image)
    (got,) = program(image)
    assert {name: value.shape for name, value in got.items()} == {
        name: value.shape for name, value in want.items()
    }
    torch.testing.assert_close(got["scores"], want["scores"], rtol=1e-4, atol=1e-6)
