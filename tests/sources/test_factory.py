from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from torch import nn

from torchferry.errors import UsageError
from torchferry.observer.maker import Maker
from torchferry.sources import factory
from torchferry.sources.factory import find_function, make_inputs, make_model

CODE = """
import dataclasses
from torch import nn

@dataclasses.dataclass
class Config:
    size: int = 2

model = nn.Linear(3, 3)
number = 5

def plain(): return nn.Linear(1, Config().size)
def pair(): return nn.Linear(1, 2), [(1,), (2,)]
def one_set(): return {"model": nn.Linear(1, 2), "inputs": {"x": 1}, "configuration": None}
def sets(): return {"model": nn.Linear(1, 2), "inputs": [{"x": 1}, {"x": 2}]}
def no_sets(): return {"model": nn.Linear(1, 2)}
def nothing(): return None
def text(): return "model"
def with_argument(size): return nn.Linear(1, size)
def fails():
    return nn.Linear(1, 2)(3)
def stops(): raise SystemExit("not today")

def inputs(): return "no model"
def inputs_of(model): return model
def inputs_of_model(model=None): return model
def inputs_of_any(anything): return anything
def inputs_with_default(count=3): return count
def inputs_of_two(model, other): return model, other
def inputs_of_sizes(batch, height=4, flag=True, kind="a"): return (batch, height, flag, kind)
def inputs_all_default(batch=2, height=4): return (batch, height)
def inputs_default_list(count=3): return [(count,)] * count
def inputs_that_raise(batch): raise ValueError("too small")
listed = [(1,), (2,)]
"""


@pytest.fixture(autouse=True)
def user_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", sys.path.copy())
    before = set(sys.modules)
    Path("mine.py").write_text(CODE)
    yield tmp_path
    for name in set(sys.modules) - before:
        if name.startswith(("mine", "torchferry_user_", "package", "broken")):
            del sys.modules[name]


@pytest.mark.parametrize("place", ["mine", "mine.py", "./mine.py"])
def test_a_factory_of_the_current_folder(place: str) -> None:
    model, sets = make_model(f"{place}:plain")
    assert isinstance(model, nn.Linear)
    assert sets is None


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("pair", [(1,), (2,)]),
        ("one_set", [{"x": 1}]),
        ("sets", [{"x": 1}, {"x": 2}]),
        ("no_sets", None),
        ("model", None),
    ],
)
def test_a_factory_may_answer_in_several_ways(name: str, expected: Any) -> None:
    model, sets = make_model(f"mine:{name}")
    assert isinstance(model, nn.Linear)
    assert sets == expected


def test_a_class_is_a_factory() -> None:
    Path("mine.py").write_text("from torch import nn\nclass Mine(nn.Module): pass\n")
    assert type(make_model("mine:Mine")[0]).__name__ == "Mine"


def test_a_module_in_a_package_and_one_that_imports_its_neighbour(user_folder: Path) -> None:
    (user_folder / "package").mkdir()
    (user_folder / "package" / "__init__.py").write_text("")
    (user_folder / "package" / "inner.py").write_text("from mine import plain\n")
    (user_folder / "package" / "beside.py").write_text("def make(): return 1\n")
    (user_folder / "package" / "entry.py").write_text("import beside\nmake = beside.make\n")
    assert callable(find_function("package.inner:plain"))
    assert find_function("package/entry.py:make")() == 1


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("mine:pare", "mine has no 'pare'; did you mean pair"),
        ("mine:xyzzy", "mine has no 'xyzzy'; is it spelt right?"),
        ("absent:make", "there is no module 'absent'"),
        ("absent.inner:make", "there is no module 'absent.inner'"),
        ("mine.inner:make", "there is no module 'mine.inner'"),
        ("absent.py:make", "there is no file absent.py"),
        ("mine.py:", "names no function: write mine.py:function"),
        ("mine.py", "names no function: write mine.py:function"),
        ("mine:number", "mine:number is an int; expected a function"),
        ("mine:nothing", "mine:nothing returned None; expected a torch.nn.Module"),
        ("mine:text", "mine:text returned a str; expected"),
        ("mine:with_argument", r"mine:with_argument takes \(size\).*with no arguments"),
    ],
)
def test_what_is_wrong_is_one_sentence(text: str, message: str) -> None:
    with pytest.raises(UsageError, match=message) as raised:
        make_model(text)
    assert len(str(raised.value).splitlines()) == 1


def test_a_factory_that_raises_shows_what_and_where(user_folder: Path) -> None:
    with pytest.raises(UsageError) as raised:
        make_model("mine:fails")
    line = CODE.splitlines().index("    return nn.Linear(1, 2)(3)") + 1
    first, place = str(raised.value).splitlines()
    assert first.startswith("mine:fails raised TypeError: linear()")
    assert place == f"  at {user_folder / 'mine.py'}:{line}"
    assert isinstance(raised.value.__cause__, TypeError)


def test_a_factory_that_exits_does_not_end_the_program() -> None:
    with pytest.raises(UsageError, match="mine:stops raised SystemExit: not today"):
        make_model("mine:stops")


@pytest.mark.parametrize(
    ("code", "error", "line"),
    [
        ("x = 1\nx = = 2\n", "SyntaxError", 2),
        ("\n\nimport no_such_module_anywhere\n", "ModuleNotFoundError", 3),
        ("1 / 0\n", "ZeroDivisionError", 1),
    ],
)
@pytest.mark.parametrize("place", ["broken", "broken.py"])
def test_a_file_that_fails_to_import_shows_where(
    user_folder: Path, code: str, error: str, line: int, place: str
) -> None:
    (user_folder / "broken.py").write_text(code)
    with pytest.raises(UsageError, match=f"raised {error}: ") as raised:
        make_model(f"{place}:make")
    assert str(raised.value).endswith(f"broken.py:{line}")


def test_a_package_that_fails_is_not_taken_for_a_missing_one(user_folder: Path) -> None:
    (user_folder / "package").mkdir()
    (user_folder / "package" / "inner.py").write_text(CODE)
    for code, error in (("1 / 0", "ZeroDivisionError"), ("import absent", "ModuleNotFoundError")):
        (user_folder / "package" / "__init__.py").write_text(code)
        with pytest.raises(UsageError, match=rf"package\.inner raised {error}"):
            make_model("package.inner:plain")


@pytest.mark.parametrize(
    ("name", "takes_model"),
    [
        ("inputs", False),
        ("inputs_of", True),
        ("inputs_of_model", True),
        ("inputs_with_default", False),
    ],
)
def test_a_function_of_inputs_gets_the_model_when_it_takes_one(
    name: str, takes_model: bool
) -> None:
    model = nn.Linear(1, 1)
    assert (make_inputs(f"mine.py:{name}", model) is model) == takes_model


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("mine:inputs", r"--inputs takes FILE\.py:NAME, and was given 'mine:inputs'"),
        ("mine.py", r"--inputs takes FILE\.py:NAME"),
        ("absent.py:inputs", "there is no file absent.py"),
        ("mine.py:input", "mine.py has no 'input'; did you mean inputs"),
        ("mine.py:number", "--inputs mine.py:number is an int, not a function or a list"),
        ("mine.py:fails", "mine.py:fails raised TypeError"),
    ],
)
def test_inputs_that_cannot_be_had_are_one_sentence(text: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        make_inputs(text, nn.Linear(1, 1))


def made(name: str) -> Any:
    return make_inputs(f"mine.py:{name}", nn.Linear(1, 1))


def test_a_list_of_inputs_may_be_named() -> None:
    assert made("listed") == [(1,), (2,)]
    assert made("inputs_default_list") == [(3,)] * 3


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("inputs_of_any", {"anything": None}),
        ("inputs_of_two", {"other": None}),
        ("inputs_of_sizes", {"batch": None, "height": 4}),
        ("inputs_all_default", {"batch": 2, "height": 4}),
    ],
)
def test_parameters_make_a_function_of_sizes(name: str, parameters: dict[str, Any]) -> None:
    maker = made(name)
    assert isinstance(maker, Maker)
    assert maker.parameters == parameters
    assert maker.title == f"mine.py:{name}"


def test_a_function_of_sizes_is_asked_by_name() -> None:
    assert made("inputs_of_sizes")({"batch": 7}) == ((7, 4, True, "a"), {})
    assert made("inputs_of_sizes")({"batch": 7, "height": 9, "other": 1})[0][1] == 9
    (model, other), _ = made("inputs_of_two")({"other": 5})
    assert isinstance(model, nn.Linear)
    assert other == 5


def test_what_a_function_of_sizes_raises_is_told_with_its_place() -> None:
    with pytest.raises(
        UsageError,
        match=r"\(batch=3\) cannot give inputs: .* ValueError: too small at .*mine\.py:\d",
    ):
        made("inputs_that_raise")({"batch": 3})


def test_torchvision_for_another_torch_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    built = "torchvision 0.29.1 was built for torch 2.14.1: pip install -U torchvision"
    monkeypatch.setattr(factory, "torchvision_complaint", lambda: built)

    def fails() -> None:
        raise RuntimeError("operator torchvision::nms does not exist")

    with pytest.raises(UsageError, match=r"does not exist\n.*\n  torchvision 0.29"):
        factory._guarded("mine:model", fails)
    with pytest.raises(UsageError) as raised:
        factory._guarded("mine:model", lambda: int("x"))
    assert built not in str(raised.value)
