from __future__ import annotations

import io
import json
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from torchferry.errors import UsageError
from torchferry.sources.archive import load_program
from torchferry.values import cache_pairs, make_dynamic_cache, register_pytrees

Edit = Callable[[bytes], bytes]


class Model(nn.Module):
    """Parameters, a buffer, a constant and sizes that are computed."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 2)
        self.register_buffer("shift", torch.ones(2))
        self.constant = torch.arange(2.0)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return self.linear(x) + self.shift + self.constant, x.flatten()[::3]


class Cached(nn.Module):
    def forward(self, x: torch.Tensor, cache: Any) -> torch.Tensor:
        keys, _ = cache.update(x, x, 0)
        return keys.sum(2)


class Evil:
    """Unpickling it makes a file: the tests look for it."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return Path.touch, (self.path,)


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    path = tmp_path / "model.pt2"
    x = torch.randn(5, 4)
    program = torch.export.export(Model(), (x,), dynamic_shapes=({0: torch.export.Dim("b")},))
    torch.export.save(program, path)
    return path


def edited(path: Path, ending: str, edit: Edit) -> Path:
    """Copy an archive with one entry changed."""
    copy = path.with_name("edited.pt2")
    found = False
    with zipfile.ZipFile(path) as old, zipfile.ZipFile(copy, "w") as new:
        for name in old.namelist():
            data = old.read(name)
            if name.endswith(ending):
                data, found = edit(data), True
            new.writestr(name.replace("model/", "edited/", 1), data)
    assert found
    return copy


def payload(**changes: Any) -> Edit:
    """Change the first entry of a configuration of weights or constants."""

    def edit(data: bytes) -> bytes:
        content = json.loads(data)
        next(iter(content["config"].values())).update(changes)
        return json.dumps(content).encode()

    return edit


def test_a_saved_program_computes_the_same_with_its_dynamic_dimension(saved: Path) -> None:
    program = load_program(saved)
    (x,), kwargs = program.example_inputs
    assert (x.shape, kwargs) == ((5, 4), {})
    assert len(program.range_constraints) >= 1
    other = torch.randn(9, 4)
    outputs = program.module()(other)
    assert outputs[0].shape == (9, 2)
    assert torch.equal(outputs[1], other.flatten()[::3])


def test_rewriting_an_archive_keeps_it_readable(saved: Path) -> None:
    """So that the refusals below are about what was changed."""
    assert load_program(edited(saved, "model.json", lambda data: data)).example_inputs


def test_example_inputs_may_be_left_out(saved: Path) -> None:
    program = load_program(saved)
    program.example_inputs = None
    torch.export.save(program, saved)
    assert load_program(saved).example_inputs is None


@pytest.mark.slow
def test_a_cache_among_the_example_inputs_loads_in_a_fresh_process(tmp_path: Path) -> None:
    cache = make_dynamic_cache([(torch.zeros(2, 1, 5, 4), torch.ones(2, 1, 5, 4))])
    register_pytrees(type(cache))
    x = torch.randn(2, 1, 3, 4)
    program = torch.export.export(Cached(), (x,), {"cache": cache})
    path = tmp_path / "model.pt2"
    torch.export.save(program, path)
    (_, kwargs) = load_program(path).example_inputs
    assert torch.equal(cache_pairs(kwargs["cache"])[0][1], torch.ones(2, 1, 5, 4))
    code = (
        "import sys; from pathlib import Path; "
        "from torchferry.sources.archive import load_program; "
        "program = load_program(Path(sys.argv[1])); args, kwargs = program.example_inputs; "
        "print(tuple(program.module()(*args, **kwargs).shape))"
    )
    command = [sys.executable, "-c", code, str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.stdout.strip() == "(2, 1, 4)", done.stderr


def test_nothing_in_the_example_inputs_is_unpickled(saved: Path, tmp_path: Path) -> None:
    trap = tmp_path / "trap"
    evil = tmp_path / "evil.pt"
    torch.save(((Evil(trap),), {}), evil)
    path = edited(saved, "sample_inputs/model.pt", lambda _: evil.read_bytes())
    with pytest.raises(UsageError, match="never unpickles"):
        load_program(path)
    assert not trap.exists()


@pytest.mark.parametrize(
    ("ending", "changes"),
    [
        ("weights_config.json", {"use_pickle": True}),
        ("constants_config.json", {"use_pickle": True}),
        ("constants_config.json", {"path_name": "custom_obj_0"}),
        ("constants_config.json", {"path_name": "opaque_obj_0"}),
    ],
)
def test_pickled_weights_and_objects_are_refused(
    saved: Path, ending: str, changes: dict[str, Any]
) -> None:
    with pytest.raises(UsageError, match="pickled object"):
        load_program(edited(saved, ending, payload(**changes)))


@pytest.mark.parametrize(
    "expression",
    [
        "__import__('os').system('true')",
        "().__class__",
        "exec('1')",
        "Symbol('s0').func",
        "Symbol('s0, x') + preview(Integer(1))",
        "[1, 2]",
    ],
)
def test_sizes_that_are_code_are_refused(saved: Path, expression: str) -> None:
    def edit(data: bytes) -> bytes:
        marker = b'"expr_str": '
        start = data.index(marker) + len(marker)
        end = data.index(b'", ', start) + 1
        return data[:start] + json.dumps(expression).encode() + data[end:]

    with pytest.raises(UsageError, match="no arithmetic"):
        load_program(edited(saved, "models/model.json", edit))


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("data/weights/model.pt", "older format"),
        ("data/constants/model.pt", "older format"),
        ("data/aotinductor/model/x.so", "compiled code"),
    ],
)
def test_old_and_compiled_archives_are_refused(saved: Path, name: str, message: str) -> None:
    with zipfile.ZipFile(saved, "a") as archive:
        archive.writestr(f"model/{name}", b"x")
    with pytest.raises(UsageError, match=message):
        load_program(saved)


def test_a_missing_foreign_or_damaged_file_is_one_sentence(saved: Path) -> None:
    with pytest.raises(UsageError, match=r"there is no file .*absent\.pt2"):
        load_program(saved.with_name("absent.pt2"))
    data = saved.read_bytes()
    saved.write_bytes(data[: len(data) // 2])
    with pytest.raises(UsageError, match="cannot be read as a program"):
        load_program(saved)
    saved.write_text("hello")
    with pytest.raises(UsageError, match="cannot be read as a program"):
        load_program(saved)
    with zipfile.ZipFile(saved, "w") as archive:
        archive.writestr("hello.txt", "hello")
    with pytest.raises(UsageError, match="cannot be read as a program"):
        load_program(saved)


def test_example_inputs_of_no_known_pickle(saved: Path) -> None:
    def spoil(data: bytes) -> bytes:
        changed = io.BytesIO()
        with zipfile.ZipFile(io.BytesIO(data)) as old, zipfile.ZipFile(changed, "w") as new:
            for name in old.namelist():
                pickled = name.endswith("data.pkl")
                new.writestr(name, b"\x80\x02\x0e." if pickled else old.read(name))
        return changed.getvalue()

    with pytest.raises(UsageError, match="cannot be read as a program"):
        load_program(edited(saved, "model.pt", spoil))


def test_the_reason_is_told_and_nothing_is_logged(
    saved: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = edited(saved, "models/model.json", lambda data: data.replace(b"aten.linear", b"aten.x"))
    with pytest.raises(UsageError, match="cannot be read") as raised:
        load_program(path)
    assert len(str(raised.value).splitlines()) == 2
    assert "warnings above" not in str(raised.value)
    assert not caplog.records


def test_names_of_inputs_that_the_program_has_not(saved: Path) -> None:
    """torch says so with an exception of its own."""
    with pytest.raises(UsageError, match="cannot be read as a program"):
        load_program(edited(saved, "model.json", rename_an_input))


def rename_an_input(data: bytes) -> bytes:
    assert b"p_linear_weight" in data
    place = data.rindex(b"p_linear_weight")
    return data[:place] + b"p_linear_weighw" + data[place + 15 :]


def test_brackets_without_end(saved: Path) -> None:
    with pytest.raises(UsageError, match="cannot be read as a program"):
        load_program(edited(saved, "model.json", lambda data: b"[" * 10**5))
