from __future__ import annotations

import gc
import weakref
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from torchferry.dumper.store import read_dump
from torchferry.errors import UsageError
from torchferry.observer.storage import Storage, open_storage, steal_append
from torchferry.observer.trace import Trace

QUIET = Trace(None)


class Writer:
    """A dump in memory that refuses what is no tensor, array or number."""

    def __init__(self) -> None:
        self.stored: dict[Any, Any] = {}

    def add(self, key: Any, value: Any) -> int:
        if isinstance(value, Trace):
            raise UsageError(f"{key}: a Trace cannot be stored")
        if value == "full":
            raise UsageError("cannot write dump: No space left on device") from OSError()
        self.stored[key] = value
        return value.nbytes if isinstance(value, torch.Tensor) else 0


def storage(*, limit: int = 2**20, drop: Any = (), trace: Trace = QUIET) -> tuple[Storage, Writer]:
    writer = Writer()
    return Storage(writer, limit, drop, trace), writer


@pytest.mark.parametrize("drop", [{"mask"}, ["mask"], "mask"])
def test_arguments_are_dropped_by_name(drop: Any) -> None:
    room, writer = storage(drop=drop)
    room.inputs("m", 0, (1,), {"mask": 2, "m": 3})
    assert writer.stored == {("m", 0, "I"): ((1,), {"m": 3})}


def test_what_does_not_fit_is_left_out_and_the_next_may_fit(
    capsys: pytest.CaptureFixture[str],
) -> None:
    room, writer = storage(limit=4096, trace=Trace(lambda value: f"{value.shape}"))
    room.outputs("a", 0, torch.zeros(512))
    room.outputs("b", 0, torch.zeros(513))
    room.outputs("c", 0, torch.zeros(512))
    room.outputs("d", 0, torch.zeros(0))
    assert list(writer.stored) == [("a", 0, "O"), ("c", 0, "O"), ("d", 0, "O")]
    assert capsys.readouterr().out == (
        "-- skips key=('b', 0, 'O'), size 2Kb, storage_limit leaves 2Kb -- torch.Size([513])\n"
    )
    assert room.left == 0
    assert room.sizes == {("a", 0, "O"): 2048, ("c", 0, "O"): 2048, ("d", 0, "O"): 0}
    assert room.skipped == {("b", 0, "O"): "size 2Kb, storage_limit leaves 2Kb"}


@pytest.mark.parametrize(
    ("value", "size"),
    [
        (torch.zeros(10, dtype=torch.bfloat16), 20),
        (torch.zeros(1024)[:10], 40),
        (torch.zeros(()), 4),
        ([torch.zeros(10)] * 3, 40),
        ({"x": np.zeros(3), "y": [None, "text", 1]}, 24),
        (torch.zeros(3, 3, device="meta"), 36),
    ],
)
def test_the_limit_is_compared_with_the_tensors_of_a_value(value: Any, size: int) -> None:
    for limit in (size, size - 1):
        room, writer = storage(limit=limit)
        room.put("x", value)
        assert len(writer.stored) == (limit == size)


def test_what_a_dump_cannot_hold_is_left_out(capsys: pytest.CaptureFixture[str]) -> None:
    room, writer = storage(trace=Trace(lambda value: type(value).__name__))
    room.put("x", QUIET)
    room.put("y", 1)
    assert list(writer.stored) == ["y"]
    assert room.sizes == {"y": 0}
    assert room.skipped == {"x": "x: a Trace cannot be stored"}
    assert capsys.readouterr().out == "-- skips key='x', x: a Trace cannot be stored -- Trace\n"


def test_a_full_disk_is_not_waited_out() -> None:
    room, _ = storage()
    with pytest.raises(UsageError, match="No space left"):
        room.put("x", "full")


def test_names_that_are_taken_get_a_number() -> None:
    room, writer = storage()
    for name in ("x", "x_1", "x", "x", "y"):
        room.append(name, 0)
    assert list(writer.stored) == ["x", "x_1", "x_2", "x_3", "y"]


def test_a_dump_is_told_of_and_can_be_read(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "dump.onnx"
    trace = Trace(lambda value: f"{value}", verbose=True)
    with open_storage(path, 2**20, (), trace) as room:
        assert room is not None
        room.outputs("m", 0, 3)
    assert read_dump(path) == {("m", 0, "O"): 3}
    assert capsys.readouterr().out == (
        "-- stores key=('m', 0), size 0Kb -- 3\n"
        "-- gather stored 1 objects, size=0 Mb\n"
        "-- dumps stored objects\n"
        "-- done dump stored objects\n"
    )


def store_and_raise(path: Path, value: Any, error: BaseException) -> None:
    with open_storage(path, 2**20, (), QUIET):
        steal_append("x", value)
        raise error


@pytest.mark.parametrize("name", ["dump.onnx", "dump.safetensors", "folder"])
def test_what_came_before_an_exception_is_in_the_dump(tmp_path: Path, name: str) -> None:
    with pytest.raises(ZeroDivisionError):
        store_and_raise(tmp_path / name, torch.ones(2), ZeroDivisionError())
    assert read_dump(tmp_path / name)["x"].tolist() == [1, 1]


def test_an_interrupted_block_leaves_the_earlier_file(tmp_path: Path) -> None:
    path = tmp_path / "dump.onnx"
    with open_storage(path, 2**20, (), QUIET):
        steal_append("x", 1)
    with pytest.raises(KeyboardInterrupt):
        store_and_raise(path, 2, KeyboardInterrupt())
    assert read_dump(path) == {"x": 1}
    assert [file.name for file in tmp_path.iterdir()] == ["dump.onnx"]


def test_steal_append_stores_in_the_innermost_dump_and_nowhere_outside(tmp_path: Path) -> None:
    steal_append("before", 1)
    with open_storage(tmp_path / "outer", 2**20, (), QUIET):
        with open_storage(tmp_path / "inner", 2**20, (), QUIET):
            steal_append("x", torch.ones(1))
        steal_append("y", 2)
    steal_append("after", 3)
    assert list(read_dump(tmp_path / "inner")) == ["x"]
    assert read_dump(tmp_path / "outer") == {"y": 2}


@pytest.mark.parametrize("name", ["folder", "dump.onnx", "dump.safetensors"])
def test_a_call_is_not_in_memory_after_it_was_written(name: str, tmp_path: Path) -> None:
    gc.collect()
    gc.disable()
    try:
        with open_storage(tmp_path / name, 2**30, (), QUIET) as store:
            x = torch.ones(2**16)
            alive = weakref.ref(x)
            store.inputs("m", 0, (x,), {"again": [x]})
            store.outputs("m", 0, {"y": x})
            del x
            assert alive() is None
    finally:
        gc.enable()
    assert len(read_dump(tmp_path / name)) == 2
