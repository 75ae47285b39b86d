"""Models of images for field.py: timm, torchvision and ultralytics, with random weights."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import nn

__all__ = ["IMAGES", "Factory", "Made", "images"]

Made = tuple[nn.Module, list[tuple[Any, ...]]]
Factory = Callable[[], Made]


def images(*shapes: tuple[int, ...]) -> list[tuple[Any, ...]]:
    return [(torch.randn(*shape),) for shape in shapes]


def spread(model: nn.Module) -> nn.Module:
    """Give products weights that keep the scale of what passes."""
    for module in model.modules():
        if isinstance(module, nn.Conv1d | nn.Conv2d | nn.Conv3d | nn.Linear):
            nn.init.kaiming_normal_(module.weight, nonlinearity="linear")
    return model


# timm --------------------------------------------------------------------------------------------

TIMM = """
resnet18 resnet26d mobilenetv3_small_050 mnasnet_small ghostnet_050 regnetx_002 regnety_002
hardcorenas_a tinynet_e semnasnet_075 lcnet_035 fbnetc_100 spnasnet_100 repvgg_a0 mobileone_s0
convnext_atto convnextv2_atto edgenext_xx_small fastvit_t8 repghostnet_050 vgg11 densenet121
dla34 efficientnet_lite0 cspresnet50 nfnet_l0 poolformer_s12 mobilenetv4_conv_small selecsls42
starnet_s1 resnetv2_50 skresnet18 rexnet_100 dpn68 hrnet_w18_small gernet_s efficientvit_b0
mobilenetv3_large_075 resnet10t
"""
TIMM_OF_ONE_SIZE = """
vit_tiny_patch16_224 deit_tiny_patch16_224 mixer_s32_224 gmlp_ti16_224 resmlp_12_224 pit_ti_224
xcit_nano_12_p16_224 mobilevit_xxs mobilevitv2_050 swin_tiny_patch4_window7_224 levit_128s
visformer_tiny convit_tiny
"""


def timm(name: str, of_one_size: bool = False) -> Made:
    create = importlib.import_module("timm").create_model
    if of_one_size:
        sized = (
            {}
            if name.startswith(("mobilevit", "pit", "xcit", "levit", "convit", "visformer"))
            else {"img_size": 224}
        )
        model = create(name, num_classes=5, **sized)
        return spread(model), images((2, 3, 224, 224), (3, 3, 224, 224))
    return spread(create(name, num_classes=5)), images((2, 3, 64, 96), (3, 3, 96, 128))


# torchvision -------------------------------------------------------------------------------------

TORCHVISION = """
alexnet resnet18 squeezenet1_1 densenet121 mobilenet_v2 mobilenet_v3_small shufflenet_v2_x0_5
mnasnet0_5 efficientnet_b0 regnet_y_400mf convnext_tiny resnext50_32x4d wide_resnet50_2 vgg11
googlenet inception_v3 swin_t swin_v2_t mobilenet_v3_large regnet_x_400mf shufflenet_v2_x1_0
mnasnet0_75
"""
SEGMENTATION = """
fcn_resnet50 deeplabv3_mobilenet_v3_large lraspp_mobilenet_v3_large
"""
DETECTION = """
ssdlite320_mobilenet_v3_large fasterrcnn_mobilenet_v3_large_320_fpn retinanet_resnet50_fpn
fcos_resnet50_fpn maskrcnn_resnet50_fpn
"""
_NO_WEIGHTS: dict[str, Any] = {"weights": None}


def torchvision(name: str) -> Made:
    more = {"init_weights": False} if name in {"googlenet", "inception_v3"} else {}
    model = getattr(importlib.import_module("torchvision.models"), name)(num_classes=5, **more)
    large = name in {"inception_v3", "alexnet", "vgg11"}
    shapes = [(2, 3, 96, 128), (3, 3, 128, 96)]
    if large:
        shapes = [(2, 3, 160, 192), (3, 3, 192, 224)]
    return spread(model), images(*shapes)


def segmentation(name: str) -> Made:
    make = getattr(importlib.import_module("torchvision.models.segmentation"), name)
    model = make(weights_backbone=None, num_classes=4, **_NO_WEIGHTS)
    return spread(model), images((2, 3, 64, 96), (3, 3, 96, 80))


def detection(name: str) -> Made:
    make = getattr(importlib.import_module("torchvision.models.detection"), name)
    sized: dict[str, Any] = {} if "320" in name else {"min_size": 160, "max_size": 320}
    if "rcnn" in name:  # each proposal is a small network's work
        sized |= {"rpn_post_nms_top_n_test": 30, "box_detections_per_img": 10}
    model = make(weights_backbone=None, num_classes=4, **sized, **_NO_WEIGHTS)
    if "retinanet" in name:  # random weights that find something
        nn.init.constant_(model.head.classification_head.cls_logits.bias, -2.0)
    sets: list[tuple[Any, ...]] = [([torch.rand(3, h, w)],) for h, w in ((160, 128), (128, 192))]
    return spread(model), sets


def video() -> Made:
    model = importlib.import_module("torchvision.models.video").r3d_18(num_classes=4)
    return spread(model), images((1, 3, 4, 32, 40), (2, 3, 6, 48, 32))


def flow() -> Made:
    model = importlib.import_module("torchvision.models.optical_flow").raft_small()
    return model, [
        (torch.rand(b, 3, 128, w), torch.rand(b, 3, 128, w)) for b, w in ((1, 128), (2, 136))
    ]


def vit() -> Made:
    make = importlib.import_module("torchvision.models").VisionTransformer
    return make(32, 8, 2, 2, 16, 32), images((2, 3, 32, 32), (3, 3, 32, 32))


def maxvit() -> Made:
    make = importlib.import_module("torchvision.models").MaxVit
    model = make((64, 64), 8, 2, [8, 16], [1, 1], 8, 0.0)
    return model, images((2, 3, 64, 64), (3, 3, 64, 64))


# ultralytics -------------------------------------------------------------------------------------

YOLO = """
yolo11n yolo11n-seg yolo11n-pose yolo11n-cls yolo11n+nms yolov8n yolov8n+nms yolo26n
"""


def ultralytics(name: str) -> Made:
    tasks = importlib.import_module("ultralytics.nn.tasks")
    kind, _, last = name.partition("+")
    task = kind.partition("-")[2]
    make = {"": "DetectionModel", "seg": "SegmentationModel", "pose": "PoseModel",
            "cls": "ClassificationModel"}[task]  # fmt: skip
    model = spread(getattr(tasks, make)(f"{kind}.yaml", verbose=False)).eval()
    head = model.model[-1]
    for module in model.modules():  # statistics of data, so that places differ in their scores
        if isinstance(module, nn.BatchNorm2d):
            module.momentum = 1.0
    with torch.no_grad():
        model.train()(torch.randn(2, 3, 128, 128))
    model.eval()
    for layers in getattr(head, "cv3", ()):
        nn.init.zeros_(layers[-1].bias)
        layers[-1].weight.data *= 0.02
    head.export, head.format, head.dynamic = True, "onnx", True
    wrapped = Suppresses(model) if last else model
    return wrapped, images((2, 3, 64, 96), (3, 3, 96, 64))


class Suppresses(nn.Module):
    """A detector with non-maximum suppression of its boxes, one image after the other."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model
        self.keep = importlib.import_module("torchvision.ops").batched_nms

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        predicted = self.model(x)[0].t()
        scores, classes = predicted[:, 4:].max(1)
        corners = predicted[:, :2] - predicted[:, 2:4] / 2
        boxes = torch.cat([corners, corners + predicted[:, 2:4]], 1)
        kept = self.keep(boxes, scores, classes, 0.5)[:30]
        return boxes[kept], scores[kept]


IMAGES: dict[str, dict[str, Factory]] = {
    "timm": {
        **{name: partial(timm, name) for name in TIMM.split()},
        **{name: partial(timm, name, of_one_size=True) for name in TIMM_OF_ONE_SIZE.split()},
    },
    "torchvision": {
        **{name: partial(torchvision, name) for name in TORCHVISION.split()},
        **{name: partial(segmentation, name) for name in SEGMENTATION.split()},
        **{name: partial(detection, name) for name in DETECTION.split()},
        **{own.__name__: own for own in (video, flow, vit, maxvit)},
    },
    "ultralytics": {name: partial(ultralytics, name) for name in YOLO.split()},
}
