from __future__ import annotations

import contextvars
import gc
import threading
import weakref
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
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


@pytest.mark.filterwarnings("ignore:.*torch.jit")  # torch's own, for jvp
def test_what_cannot_be_read_is_left_out(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    @dataclass
    class Later:
        a: Any
        b: Any = field(init=False)

    itself: list[Any] = [torch.ones(1)]
    itself.append(itself)
    values = [
        torch.eye(3).to_sparse(),
        torch.nested.nested_tensor([torch.zeros(2), torch.zeros(3)], layout=torch.jagged),
        Later(torch.ones(1)),
        itself,
        torch.zeros(2, device="meta"),
    ]
    with open_storage(tmp_path / "d.onnx", 2**20, (), QUIET) as room:
        for number, value in enumerate(values):
            room.outputs("m", number, value)
        x = torch.ones(3)

        def seen(key: str, y: torch.Tensor) -> torch.Tensor:
            room.outputs(key, 0, y)
            return (y * 2).sum()

        torch.func.vmap(partial(seen, "vmap"))(x)
        torch.func.grad(partial(seen, "grad"))(x)
        torch.func.jvp(partial(seen, "jvp"), (x,), (x,))
        torch.func.functionalize(partial(seen, "functionalize"))(x)
        room.outputs("m", 99, torch.ones(1))
    assert list(read_dump(tmp_path / "d.onnx")) == [("m", 99, "O")]
    assert len(room.skipped) == room.left_out == len(values) + 4
    assert len(caplog.records) == room.left_out


def test_so_many_left_out_values_are_listed_and_all_are_counted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("torchferry.observer.storage._LISTED", 3)
    room, _ = storage(limit=0)
    for number in range(5):
        room.outputs("m", number, torch.zeros(1))
    assert (list(room.skipped), room.left_out) == ([("m", n, "O") for n in range(3)], 5)


@pytest.mark.parametrize("name", ["dump.onnx", "dump.safetensors", "folder"])
def test_the_limit_is_for_what_lies_between_tensors_too(tmp_path: Path, name: str) -> None:
    big = torch.zeros(1_000_000)
    with open_storage(tmp_path / name, 10_000, (), QUIET) as room:
        room.put("far", (big[:1], big[-1:]))
        room.put("near", (big[:1], big[10:11]))
        room.put("same", [big[:100]] * 50)
    assert list(read_dump(tmp_path / name)) == ["near", "same"]
    assert room.sizes == {"near": 44, "same": 400}
    assert room.left == 10_000 - 444


@pytest.mark.parametrize(
    ("limit", "drop", "message"),
    [
        ("1", (), "storage_limit is a number of bytes, not '1'"),
        (None, (), "storage_limit is a number of bytes, not None"),
        (-1, (), "not -1"),
        (1.5, (), "not 1.5"),
        (2**20, 3, "dump_drop takes names of keyword arguments, not int"),
        (2**20, [3], "dump_drop takes names"),
    ],
)
def test_wrong_settings_are_refused_at_the_start(
    tmp_path: Path, limit: Any, drop: Any, message: str
) -> None:
    with (
        pytest.raises(UsageError, match=message),
        open_storage(tmp_path / "d.onnx", limit, drop, QUIET),
    ):
        pytest.fail("it must not start")
    assert list(tmp_path.iterdir()) == []


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


def test_steal_append_stores_in_the_dump_of_its_own_thread(tmp_path: Path) -> None:
    opened, stored = threading.Event(), threading.Event()

    def other() -> None:
        with open_storage(tmp_path / "other", 2**20, (), QUIET):
            opened.set()
            assert stored.wait(timeout=30)

    thread = threading.Thread(target=other)
    with open_storage(tmp_path / "mine", 2**20, (), QUIET):
        thread.start()
        assert opened.wait(timeout=30)
        steal_append("x", 1)
        stored.set()
        thread.join()
        with ThreadPoolExecutor(1) as pool:  # of a thread without a block of its own
            pool.submit(steal_append, "y", 2).result()
    assert read_dump(tmp_path / "mine") == {"x": 1, "y": 2}
    assert read_dump(tmp_path / "other") == {}


def test_steal_append_never_stores_in_a_dump_that_is_closed(tmp_path: Path) -> None:
    first = open_storage(tmp_path / "first", 2**20, (), QUIET)
    contextvars.copy_context().run(first.__enter__)
    second = open_storage(tmp_path / "second", 2**20, (), QUIET)
    second.__enter__()
    contextvars.copy_context().run(second.__exit__, None, None, None)
    steal_append("x", 1)
    first.__exit__(None, None, None)
    steal_append("y", 2)
    assert (read_dump(tmp_path / "first"), read_dump(tmp_path / "second")) == ({"x": 1}, {})


@pytest.mark.parametrize("name", ["folder", "dump.onnx", "dump.safetensors"])
def test_a_call_is_not_in_memory_after_it_was_written(name: str, tmp_path: Path) -> None:
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
