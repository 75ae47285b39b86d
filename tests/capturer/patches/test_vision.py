import importlib

import pytest
import torch

from torchferry.capturer.patches.vision import PATCHES, Layout, same_segment
from torchferry.capturer.patching.patch import fingerprint
from torchferry.capturer.trial.agreement import run_program
from torchferry.zoo import build

upstream = pytest.importorskip("transformers.vision_utils")  # which older ones do not have
GRIDS = {
    "one": [[1, 4, 6]],
    "lying and standing": [[1, 4, 6], [1, 6, 4], [1, 2, 2]],
    "videos": [[3, 4, 4], [1, 8, 2], [2, 6, 10]],
}


@pytest.fixture(params=GRIDS.values(), ids=list(GRIDS))
def grid(request) -> torch.Tensor:
    return torch.tensor(request.param)


@pytest.mark.parametrize("merge", [1, 2])
def test_positions_are_those_of_upstream(grid, merge):
    layout = Layout(grid, int(grid.prod(1).sum()), merge)
    want = upstream.get_vision_position_ids(grid, merge)
    torch.testing.assert_close(layout.positions(), want, atol=0, rtol=0)


def test_frames_are_those_of_upstream(grid):
    length = int(grid.prod(1).sum())
    bounds = Layout(grid, length, 2).frames()
    want = upstream.get_vision_cu_seqlens(grid)
    torch.testing.assert_close(torch.unique(bounds), want, atol=0, rtol=0)
    assert bounds.shape == (length + 1,)


@pytest.mark.parametrize("side", [1, 2, 3, 8])
def test_windows_are_those_of_upstream(grid, side):
    length = int(grid.prod(1).sum())
    order, bounds = Layout(grid, length, 2).windows(side)
    index, want = upstream.get_vision_window_index(grid, 2, side * 2 * 14, 14)
    torch.testing.assert_close(order, index, atol=0, rtol=0)
    torch.testing.assert_close(torch.unique(bounds), want, atol=0, rtol=0)


def test_a_bound_may_stand_there_more_than_once():
    mask = same_segment(torch.tensor([0, 0, 2, 2, 3], dtype=torch.int32), 3)
    assert mask.tolist() == [[True, True, False], [True, True, False], [False, False, True]]


@pytest.mark.parametrize("patch", PATCHES, ids=lambda patch: patch.subject)
def test_upstream_is_what_the_patch_was_written_for(patch):
    importlib.import_module(patch.subject.rpartition(".")[0].rpartition(".")[0])
    assert patch.misfit() is None
    assert fingerprint(patch.upstream()) in patch.fingerprints
    assert "+" in patch.diff()


@pytest.mark.slow
@pytest.mark.parametrize("name", ["llava", "qwen2_vl", "qwen2_5_vl"])
def test_a_prompt_with_images_of_any_number(name, captured):
    entry = build(name, "image-text-to-text", "prefill")
    found = captured(entry.model, list(entry.input_sets))
    assert found.joined == ("pooler_output",)
    outputs = run_program(found.program, (), entry.input_sets[0])
    assert len(outputs["image_outputs"]["pooler_output"]) == 1


@pytest.mark.slow
def test_videos_among_them(captured):
    model = build("qwen2_5_vl", "image-text-to-text").model.model.visual
    torch.manual_seed(0)
    sets = []
    for grid in ([[2, 4, 6], [1, 6, 4]], [[1, 4, 4], [3, 2, 6], [2, 4, 4]], [[1, 2, 2]]):
        shape = torch.tensor(grid)
        pixels = torch.randn(int(shape.prod(1).sum()), 96)
        sets.append({"hidden_states": pixels, "grid_thw": shape})
    captured(model, sets)
