"""Non-maximum suppression by class; what needs torchvision is in tests/field."""

import sys
import types

import torch

from torchferry.capturer.patches.detection import PATCHES
from torchferry.capturer.patching.patching import apply_patches


def test_every_module_that_imports_it_has_the_replacement(monkeypatch):
    def batched_nms(boxes, scores, idxs, iou_threshold):
        return scores

    home, user, other = (types.ModuleType(n) for n in ("torchvision.ops.boxes", "user", "other"))
    home.batched_nms = user.batched_nms = batched_nms
    other.batched_nms = None
    for module in (home, user, other):
        monkeypatch.setitem(sys.modules, module.__name__, module)
    with apply_patches(PATCHES[:1]), apply_patches(PATCHES[:1]) as again:
        assert len(PATCHES[0].find()) == 2
        for module in (home, user):
            assert module.batched_nms.__torchferry_original__ is batched_nms
    assert [one.patch for one in again.applied] == [PATCHES[0]]
    assert home.batched_nms is user.batched_nms is batched_nms
    assert other.batched_nms is None


def test_images_are_padded_to_the_largest():
    images = [torch.rand(3, 33, 64), torch.rand(3, 5, 65)]
    batch = PATCHES[1].replace(None)(None, images)
    assert batch.shape == (2, 3, 64, 96)
    for image, padded in zip(images, batch, strict=True):
        assert padded[:, : image.shape[1], : image.shape[2]].equal(image)
        torch.testing.assert_close(padded.sum(), image.sum())
    assert PATCHES[1].replace(None)(None, images[:1], 16).shape == (1, 3, 48, 64)


def test_masks_are_pasted_at_once():
    def paste(mask, box, height, width):  # as torchvision does, mask by mask
        mask = torch.nn.functional.pad(mask, (1, 1, 1, 1))
        center, half = (box[:2] + box[2:]) * 0.5, (box[2:] - box[:2]) * 0.5 * (7 / 5)
        left, top = (center - half).long().tolist()
        right, bottom = (center + half).long().tolist()
        size = (max(bottom - top + 1, 1), max(right - left + 1, 1))
        resized = torch.nn.functional.interpolate(mask[None], size, mode="bilinear")[0, 0]
        image = torch.zeros(1, height, width)
        for y in range(max(top, 0), min(bottom + 1, height)):
            for x in range(max(left, 0), min(right + 1, width)):
                image[0, y, x] = resized[y - top, x - left]
        return image

    torch.manual_seed(0)
    masks = torch.rand(4, 1, 5, 5)
    boxes = torch.tensor([[1.0, 2, 9, 8], [0, 0, 12, 10], [7.5, 3, 7.6, 3.1], [10, 8, 12, 10]])
    pasted = PATCHES[2].replace(None)
    want = torch.stack([paste(m, b, 10, 12) for m, b in zip(masks, boxes, strict=True)])
    torch.testing.assert_close(pasted(masks, boxes, (10, 12)), want)
    assert pasted(masks[:0], boxes[:0], (10, 12)).shape == (0, 1, 10, 12)


def test_without_torchvision_nothing_is_replaced(monkeypatch):
    for name in [name for name in sys.modules if name.startswith("torchvision")]:
        monkeypatch.delitem(sys.modules, name)
    assert PATCHES[0].find() == ()
    assert PATCHES[0].misfit() == "it is not imported"


def test_boxes_of_other_classes_are_moved_apart(monkeypatch):
    seen = []

    class Operators:
        @staticmethod
        def nms(boxes, scores, iou_threshold):
            seen.append(boxes)
            return scores.argsort(descending=True)

    monkeypatch.setattr(torch.ops, "torchvision", Operators, raising=False)
    keep = PATCHES[0].replace(None)
    boxes = torch.tensor([[0.0, 0, 4, 9], [0, 0, 4, 9], [-3, 1, 2, 2]])
    assert keep(boxes, torch.tensor([1.0, 3, 2]), torch.tensor([0, 1, 2]), 0.5).tolist() == [
        1,
        2,
        0,
    ]
    assert seen[0][:, 0].tolist() == [0, 10, 17]
    assert keep(boxes[:0], torch.zeros(0), torch.zeros(0, dtype=torch.int64), 0.5).tolist() == []
