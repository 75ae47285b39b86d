"""What older versions of onnxruntime compute wrong, attacked through the public functions."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import torchferry as tf
from families import in_turn
from torchferry.graph.runtime import (
    DOUBLE_COSINES,
    DOUBLE_NORMS,
    DOUBLE_PRODUCTS,
    DOUBLE_SILU,
    EMPTY_TENSORS,
    HIDDEN_ROWS,
    LEAST_KEY,
    NAN_ERF,
    OLDEST,
    Ability,
    installed,
)
from torchferry.optimizer import tally
from torchferry.runner import session
from versions import can, needs

attend = torch.nn.functional.scaled_dot_product_attention


class Masked(torch.nn.Module):
    """Attention of one layer; rows that the mask hides as a whole are zeros."""

    def forward(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        heads = x.unflatten(-1, (2, 8)).transpose(1, 2)
        return attend(heads, heads + 1, heads - 1, attn_mask=mask)


def inputs(batch: int, length: int, kind: Any = torch.bool) -> tuple[torch.Tensor, torch.Tensor]:
    seen = torch.rand(batch, 1, length, length) > 0.4
    seen[..., 0, :] = False  # a row without a key
    mask = seen if kind is torch.bool else torch.where(seen, 0.0, kind)
    return torch.randn(batch, length, 16), mask


def sets(kind: Any = torch.bool) -> list[tuple[tuple[Any, ...], dict[str, Any]]]:
    return [(inputs(batch, length, kind), {}) for batch, length in ((2, 5), (3, 7))]


HIDING = [torch.bool, -torch.inf, torch.finfo(torch.float32).min]


@pytest.mark.parametrize(
    ("kind", "opset", "target"),
    in_turn(HIDING, [(20, "onnx"), (23, "onnxruntime"), (20, "onnxruntime"), (23, "onnx")]),
)
def test_masks_that_hide_rows(kind: Any, opset: int, target: Any) -> None:
    model = Masked().eval()
    program = tf.export(model, sets(kind), target=target, opset=opset)
    assert program.report.ok, program.report.problems
    for sizes in ((1, 1), (1, 4), (4, 2)):
        given = inputs(*sizes, kind)
        torch.testing.assert_close(program(*given), model(*given), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("kind", HIDING, ids=["bool", "inf", "least"])
def test_a_file_for_the_oldest_is_right_on_every_one(kind: Any, tmp_path: Path) -> None:
    program = tf.export(
        Masked().eval(), sets(kind), target="onnxruntime", opset=23, onnxruntime=OLDEST
    )
    assert program.model.metadata_props[LEAST_KEY] == OLDEST
    program.save(tmp_path / "model.onnx")
    given = inputs(1, 3, kind)
    found = tf.load(tmp_path / "model.onnx")(*given)
    torch.testing.assert_close(found, Masked()(*given), rtol=1e-4, atol=1e-5)


class Doubles(torch.nn.Module):
    """One step in float64."""

    def __init__(self, step: Callable[[torch.Tensor], torch.Tensor]) -> None:
        super().__init__()
        self.step = step

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.step(x)


def normed(x: torch.Tensor) -> torch.Tensor:
    return x / (x.pow(2).mean(-1, keepdim=True) + 1e-6).sqrt() * torch.full((5,), 0.3).double()


def rows(*special: float) -> list[tuple[tuple[Any, ...], dict[str, Any]]]:
    last = torch.full((1, 5), *special or (1.0,))
    return [((torch.cat([torch.randn(n, 5), last]).double(),), {}) for n in (2, 3)]


WRONG: dict[str, tuple[Ability, Callable[[torch.Tensor], torch.Tensor], Any]] = {
    "NaN": (NAN_ERF, lambda x: torch.erf(x.float()), rows(torch.nan)),
    "cosine": (DOUBLE_COSINES, torch.cos, rows()),
    "norm": (DOUBLE_NORMS, normed, rows()),
    "SiLU": (DOUBLE_SILU, torch.nn.functional.silu, rows()),
    "product": (DOUBLE_PRODUCTS, lambda x: x @ (x + 1).t(), rows()),
}


def without_the_table(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if every version could do everything."""
    monkeypatch.setattr(tally, "has", lambda version, ability: True)
    monkeypatch.setattr(session, "too_old", lambda path, least: "")


@pytest.mark.skipif(can(HIDDEN_ROWS), reason="the installed onnxruntime makes zeros")
def test_verification_would_have_caught_rows_of_nan(monkeypatch: pytest.MonkeyPatch) -> None:
    without_the_table(monkeypatch)
    program = tf.export(Masked().eval(), sets(), target="onnxruntime", opset=23)
    assert not program.report.ok
    assert "differs" in str(program.report)


@pytest.mark.parametrize("name", WRONG)
def test_verification_catches_what_is_wrong_in_float64(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A kernel that computes something else, or that is missing, never passes for right."""
    without_the_table(monkeypatch)
    ability, step, recorded = WRONG[name]
    model = Doubles(step).eval()
    try:
        # What fuses here is onnxruntime itself.
        program = tf.export(model, recorded, target="onnx", budget=10)
    except tf.FerryError:
        assert not can(ability), "the installed onnxruntime can do it"
        return
    assert program.report.ok is can(ability), program.report.problems


@needs(EMPTY_TENSORS)
@pytest.mark.parametrize("sizes", [(0, 3), (2, 0)])
def test_empty_sizes(sizes: tuple[int, int]) -> None:
    model = torch.nn.Linear(4, 3)
    program = tf.to_onnx(model, (torch.randn(2, 3, 4),), dynamic_shapes=({0: "a", 1: "b"},))
    x = torch.randn(*sizes, 4)
    assert torch.equal(program(x), model(x))


def test_sums_of_nothing_are_right_or_refused() -> None:
    class Sum(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x.sum(-1)

    recorded = [((torch.randn(2, 5),), {}), ((torch.randn(3, 4),), {})]
    program = tf.export(Sum(), recorded)
    assert program.report.ok
    x = torch.randn(0, 5)
    try:
        found = program(x)
    except tf.FerryError:
        assert not can(EMPTY_TENSORS)
        return
    assert found.shape == (0,), installed()


@pytest.mark.parametrize("dtype", [torch.float8_e4m3fn, torch.float8_e5m2, torch.bool])
def test_outputs_that_dlpack_does_not_know(dtype: torch.dtype, tmp_path: Path) -> None:
    class To(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return (x > 0) if dtype is torch.bool else x.to(dtype)

    recorded = [((torch.randn(2, 3),), {}), ((torch.randn(4, 3),), {})]
    program = tf.export(To(), recorded)
    assert program.report.ok, program.report.problems
    program.save(tmp_path / "model.onnx")
    x = torch.randn(1, 3)
    found = tf.load(tmp_path / "model.onnx")(x)
    assert found.dtype is dtype
    assert torch.equal(found.float(), To()(x).float())


def test_compare_of_masks_that_hide_rows(tmp_path: Path) -> None:
    model = Masked().eval()
    program = tf.to_onnx(
        model, inputs(2, 5), dynamic_shapes=({0: "b", 1: "n"}, {0: "b", 2: "n", 3: "n"}), opset=23
    )
    path = program.save(tmp_path / "model.onnx")
    assert tf.compare(model, path, [(inputs(1, 4), {})]).ok


def test_optimized_masks_keep_their_numbers(tmp_path: Path) -> None:
    model = Masked().eval()
    program = tf.to_onnx(
        model, inputs(2, 5), dynamic_shapes=({0: "b", 1: "n"}, {0: "b", 2: "n", 3: "n"})
    )
    tf.optimize(program.model, target="onnxruntime")
    program.save(tmp_path / "model.onnx")
    given = inputs(1, 4)
    torch.testing.assert_close(program(*given), model(*given), rtol=1e-4, atol=1e-5)
