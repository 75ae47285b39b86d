"""torchvision: detectors with their lists of images and dictionaries of boxes."""

import copy

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


class Backbone(torch.nn.Module):
    """A small feature pyramid of two levels."""

    out_channels = 32  # a detector's groups

    def __init__(self):
        super().__init__()
        self.first = torch.nn.Conv2d(3, 32, 3, 4, 1)
        self.second = torch.nn.Conv2d(32, 32, 3, 2, 1)

    def forward(self, x):
        large = self.first(x).relu()
        return {"0": large, "1": self.second(large)}


def detector(name):
    torch.manual_seed(0)
    generator = detection.anchor_utils.AnchorGenerator
    own = {"min_size": 48, "max_size": 80, "num_classes": 3}
    if name == "FCOS":
        own["anchor_generator"] = detection.anchor_utils.AnchorGenerator(
            ((8,), (16,)), ((1.0,),) * 2
        )
    else:
        key = "anchor_generator" if name == "RetinaNet" else "rpn_anchor_generator"
        own[key] = generator(((16,), (32,)), ((0.5, 1.0),) * 2)
    if "RCNN" in name:
        pool = {"featmap_names": ["0", "1"], "sampling_ratio": 2}
        own |= {
            "rpn_post_nms_top_n_test": 20, "box_detections_per_img": 6,
            "box_roi_pool": ops.MultiScaleRoIAlign(output_size=7, **pool),
        }  # fmt: skip
    if name == "MaskRCNN":
        own["mask_roi_pool"] = ops.MultiScaleRoIAlign(output_size=14, **pool)
    model = getattr(detection, name)(Backbone(), **own).eval()
    for module in model.modules():
        if isinstance(module, torch.nn.Conv2d | torch.nn.Linear):
            torch.nn.init.kaiming_normal_(module.weight, nonlinearity="linear")
    if name in ("RetinaNet", "FCOS"):
        torch.nn.init.zeros_(model.head.classification_head.cls_logits.bias)
    return model


@pytest.mark.slow
@pytest.mark.parametrize("name", ["RetinaNet", "FCOS", "FasterRCNN", "MaskRCNN"])
def test_detectors(name):
    model = detector(name)
    sets = [([torch.rand(3, h, w)],) for h, w in ((64, 48), (56, 96))]
    images = [torch.rand(3, h, w) for h, w in ((72, 60), (48, 120), (50, 50))]
    with torch.no_grad():
        best = sorted(copy.deepcopy(model)([one])[0]["scores"].max().item() for one in images)
    scored = model.roi_heads if "RCNN" in name else model
    scored.score_thresh = (best[0] + best[1]) / 2  # nothing is detected in an image
    program = torchferry.export(model, sets, progress=False)
    assert program.report.ok, program.report.problems
    counts = []
    for image in images:
        with torch.no_grad():
            (want,) = model([image])
        (got,) = program([image])
        counts.append(len(want["boxes"]))
        assert got.keys() == want.keys()
        for key, value in want.items():
            torch.testing.assert_close(got[key], value, rtol=1e-3, atol=1e-3)
    assert counts.count(0) == 1
