import logging
import threading
import time

import pytest
import torch
from torch.nn import functional

from torchferry.capturer import (
    Patch,
    bypass_export_some_errors,
    patch_rows,
    torch_export_patches,
)
from torchferry.capturer.patching.patching import apply_patches
from torchferry.errors import UsageError


def doubled(found):
    return lambda *args, **kwargs: found(*args, **kwargs) * 2


DOUBLE = Patch("torch.nn.functional.relu", "twice is better", "", doubled)
METHOD = Patch(f"{__name__}.Model.change", "twice is better", "", doubled)
X = torch.tensor([-1.0, 3.0])


class Model(torch.nn.Module):
    def forward(self, x):
        return self.change(x)

    def change(self, x):
        return x.relu()


def test_a_patch_is_in_force_in_the_block_only():
    before = functional.relu
    with torch_export_patches(custom_patches=[DOUBLE]) as patching:
        assert patching.hit == ()
        assert functional.relu(X).tolist() == [0, 6]
    assert patching.hit == ("torch.nn.functional.relu",)
    assert functional.relu is before


def test_it_is_taken_back_after_an_exception():
    before = functional.relu
    with pytest.raises(ZeroDivisionError), torch_export_patches(custom_patches=[DOUBLE]):
        raise ZeroDivisionError
    assert functional.relu is before


def test_nested_blocks_apply_it_once_and_both_count():
    with torch_export_patches(custom_patches=[DOUBLE]) as outer:
        with torch_export_patches(custom_patches=[DOUBLE]) as inner:
            assert functional.relu(X).tolist() == [0, 6]
        assert functional.relu(X).tolist() == [0, 6]
    (one,), (other,) = ([a for a in p.applied if a.patch == DOUBLE] for p in (outer, inner))
    assert (one.hits, other.hits) == (2, 1)


def test_two_patches_of_one_function_are_both_applied():
    third = Patch("torch.nn.functional.relu", "and once more", "", doubled)
    with apply_patches([DOUBLE, third]) as patching:
        assert functional.relu(X).tolist() == [0, 12]
    assert len(patching.hit) == 2


@pytest.mark.parametrize("strict", [False, True])
def test_hits_are_counted_while_a_model_is_traced(strict):
    with torch_export_patches(custom_patches=[METHOD]) as patching:
        program = torch.export.export(Model(), (X,), strict=strict)
    assert patching.hit == (f"{__name__}.Model.change",)
    assert Model()(X).tolist() == [0, 3]
    assert program.module()(X).tolist() == [0, 6]


def test_a_call_it_is_not_for_goes_to_the_original():
    large = Patch("torch.nn.functional.relu", "why", "", doubled, acts=lambda x: x.numel() > 2)
    with apply_patches([large]) as patching:
        assert functional.relu(X).tolist() == [0, 3]
        assert patching.hit == ()
        assert functional.relu(torch.ones(3)).tolist() == [2, 2, 2]
    assert patching.hit == ("torch.nn.functional.relu",)


def test_what_is_not_needed_or_does_not_fit_is_left_out():
    retired = Patch("torch.nn.functional.relu", "why", "", doubled, probe=lambda: False)
    changed = Patch("torch.nn.functional.relu", "why", "", doubled, fingerprints=("0" * 12,))
    with apply_patches([retired, changed]) as patching:
        assert functional.relu(X).tolist() == [0, 3]
    assert patching.applied == []
    reasons = [reason for _, reason in patching.left_out]
    assert reasons[0] == "retired: not needed any more"
    assert "not the one it was written for" in reasons[1]


def test_classes_of_replaced_methods():
    class Thing:
        def value(self):
            return 1

    class PatchedThing:
        """Why."""

        _PATCHES_ = ("value",)
        _PATCHED_CLASS_ = Thing

        def value(self):
            return 2

    with bypass_export_some_errors(custom_patches=[PatchedThing]) as patching:
        assert Thing().value() == 2
    assert Thing().value() == 1
    assert patching.hit[0].endswith("Thing.value")
    PatchedThing._PATCHES_ = ("value", "other")
    with (
        pytest.raises(UsageError, match="names other"),
        torch_export_patches(custom_patches=[PatchedThing]),
    ):
        pass


@pytest.mark.parametrize("wrong", [object, Patch("nowhere.function", "", "", doubled)])
def test_a_custom_patch_that_is_none(wrong):
    with pytest.raises(UsageError, match="custom"), torch_export_patches(custom_patches=[wrong]):
        pass


def test_libraries_can_be_left_out():
    with torch_export_patches(patch_torch=False, patch_transformers=False) as patching:
        assert patching.applied == []
        assert patching.left_out == []
    with torch_export_patches(patch_transformers=False) as patching:
        assert {one.patch.library for one in patching.applied} == {"torch"}


def test_it_tells_what_it_does(caplog):
    with (
        caplog.at_level(logging.INFO, "torchferry"),
        torch_export_patches(custom_patches=[DOUBLE], verbose=2),
    ):
        functional.relu(X)
    assert "patch torch.nn.functional.relu: twice is better" in caplog.text
    assert "patches hit: torch.nn.functional.relu" in caplog.text
    assert "no patch of" in caplog.text


def test_no_patch_hides_that_shapes_do_not_fit():
    with torch_export_patches(), pytest.raises(RuntimeError):
        torch.export.export(torch.nn.Linear(3, 2), (torch.ones(2, 4),), dynamic_shapes=({0: "n"},))


@pytest.mark.filterwarnings("ignore:The tensor attributes")
def test_rows_have_a_state_and_a_diff():
    rows = {row.subject: row for row in patch_rows()}
    lstm = rows["torch.ops.aten.lstm.input"]
    assert lstm.state in ("needed", "hit")
    assert lstm.diff.startswith("--- torch.ops.aten.lstm.input")
    assert lstm.link.startswith("https://")
    assert all(row.why for row in rows.values())
    with torch_export_patches(), torch.no_grad():
        dynamic = {0: torch.export.Dim.AUTO}
        torch.export.export(torch.nn.LSTM(2, 2), (torch.ones(3, 1, 2),), dynamic_shapes=(dynamic,))
    hit = {row.subject: row for row in patch_rows()}["torch.ops.aten.lstm.input"]
    assert (hit.state, hit.hits > lstm.hits) == ("hit", True)


def test_blocks_may_end_in_any_order():
    before = functional.relu
    third = Patch("torch.nn.functional.relu", "thrice", "", lambda found: lambda x: found(x) * 3)
    first, second = apply_patches([DOUBLE]), apply_patches([third])
    with first as one:
        second.__enter__()
        assert functional.relu(X).tolist() == [0, 18]
    assert functional.relu(X).tolist() == [0, 9]
    assert one.applied[0].hits == 1
    with apply_patches([DOUBLE]):  # it lies below the other, and works again
        assert functional.relu(X).tolist() == [0, 18]
    second.__exit__(None, None, None)
    assert functional.relu is before


def test_threads_leave_functions_as_they_were():
    before = functional.scaled_dot_product_attention

    def work():
        for _ in range(5):
            with torch_export_patches(custom_patches=[DOUBLE]):
                time.sleep(0.001)

    threads = [threading.Thread(target=work) for _ in range(4)]
    relu = functional.relu
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert functional.scaled_dot_product_attention is before
    assert functional.relu is relu


def test_what_other_code_put_on_top_goes_too(caplog):
    before = functional.relu
    with apply_patches([DOUBLE]):
        functional.relu = doubled(functional.relu)
    assert functional.relu is before
    assert "replaced again" in caplog.text
