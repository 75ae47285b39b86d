from __future__ import annotations

import inspect

import pytest
import torch

from torchferry.capturer import Fixed
from torchferry.dims import Dim
from torchferry.exporter.verify.dimension import DimensionCheck, check_dimensions
from torchferry.exporter.verify.verify import Check, Compared
from torchferry.judge import Kind, Verdict
from torchferry.observer import Call, Observation
from torchferry.values import make_dynamic_cache

B, W = "batch_size", "x_dim_1"


def forward(x: torch.Tensor, y: torch.Tensor | None = None) -> None: ...


def seen(*shapes: tuple[int, ...]) -> Observation:
    calls = [Call((), {"x": torch.zeros(shape)}) for shape in shapes]
    return Observation(inspect.signature(forward), "Model", calls)


TWO = seen((3, 4), (5, 8))


def at(verdict: Kind | None, batch: int, width: int, *, refused: str | None = None) -> Check:
    outputs = () if verdict is None else (Compared("y", Verdict(verdict)),)
    return Check({B: batch, W: width}, made=False, outputs=outputs, refused=refused)


def checked(*checks: Check, fixed: tuple[Fixed, ...] = ()) -> dict[str, DimensionCheck]:
    return {d.name: d for d in check_dimensions(TWO, fixed, checks)}


def test_two_sizes_verify_a_dimension() -> None:
    found = checked(at("equal", 3, 4), at("equal", 5, 8), at("equal", 1, 4))
    assert [(d.status, d.agreed, d.failed, d.note) for d in found.values()] == [
        ("verified", (1, 3, 5), (), ""), ("verified", (4, 8), (), ""),
    ]  # fmt: skip


def test_one_size_does_not() -> None:
    found = checked(at("equal", 3, 4), at("equal", 5, 4))
    assert (found[B].status, found[W].status) == ("verified", "unverified")


def test_random_outputs_verify_nothing_and_fail_nothing() -> None:
    found = checked(at("random", 3, 4), at("random", 5, 8))
    assert {(d.status, d.agreed, d.failed) for d in found.values()} == {("unverified", (), ())}


def test_the_dimension_whose_size_never_passes_is_the_culprit() -> None:
    found = checked(at("equal", 3, 4), at("equal", 5, 8), at("differs", 1, 4))
    assert (found[B].status, found[B].failed) == ("differs", (1,))
    assert (found[W].status, found[W].failed) == ("verified", ())


def test_an_error_of_onnxruntime_counts_as_a_failure() -> None:
    wrong = Check({B: 1, W: 4}, made=True, error="bad Reshape")
    assert checked(at("equal", 3, 4), at("equal", 5, 8), wrong)[B].failed == (1,)


def test_when_both_may_be_the_culprit_neither_is_called_one() -> None:
    found = checked(at("equal", 3, 4), at("equal", 5, 8), at("differs", 6, 9))
    assert {d.status for d in found.values()} == {"verified"}


def test_when_each_size_passes_elsewhere_both_are() -> None:
    found = checked(at("equal", 3, 4), at("equal", 5, 8), at("differs", 3, 8))
    assert {(d.status, d.failed) for d in found.values()} == {("verified", ())}


def test_nothing_passes_at_all() -> None:
    found = checked(at("differs", 3, 4), at("differs", 5, 8))
    assert {d.status for d in found.values()} == {"unverified"}
    assert {d.agreed for d in found.values()} == {()}


def test_sizes_that_pytorch_refuses_are_no_failure() -> None:
    found = checked(at("equal", 3, 4), at("equal", 5, 8), at(None, 1, 4, refused="ValueError: no"))
    assert (found[B].status, found[B].note) == ("verified", "PyTorch refuses 1")
    assert found[W].note == ""


@pytest.mark.parametrize(
    ("size", "line", "note"),
    [
        (3, "m.py:7: int(n)", "fixed to 3 by m.py:7: int(n)"),
        (3, None, "fixed to 3"),
        (Dim.of(W), "m.py:9: x @ x", "tied to x_dim_1 by m.py:9: x @ x"),
    ],
)
def test_a_constant_is_specialised_and_says_by_which_line(
    size: int | Dim, line: str | None, note: str
) -> None:
    fixed = Fixed("x", 0, B, size, line)
    found = checked(at("equal", 3, 4), at("equal", 5, 8), fixed=(fixed,))
    assert (found[B].status, found[B].note) == ("fixed", note)
    assert found[W].status == "verified"


def test_the_places_where_a_dimension_stands() -> None:
    calls = []
    for batch, length in ((2, 5), (3, 9)):
        layers = [(torch.zeros(batch, 1, length, 4), torch.zeros(batch, 1, length, 4))] * 3
        cache = make_dynamic_cache(layers)
        calls.append(Call((), {"x": torch.zeros(batch, length + 1), "y": cache}))
    observation = Observation(inspect.signature(forward), "Model", calls)
    places = {d.name: d.places for d in check_dimensions(observation, (), ())}
    assert places[B] == ("x[0]", "y.0.key[0]", "y.1.key[0]", "… 4 more")


def test_nothing_is_dynamic() -> None:
    assert check_dimensions(seen((3, 4), (3, 4)), (), ()) == []
