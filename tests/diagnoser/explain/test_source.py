from __future__ import annotations

import importlib.util
import logging
import math
import sys
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from torchferry.diagnoser.explain.source import Code, is_users
from torchferry.errors import UsageError

log = logging.getLogger("here")
FACTOR = 2.5
TABLE = {"a": [1, 2]}
SENTINEL = object()


def scaled(x: torch.Tensor) -> torch.Tensor:
    return x * FACTOR * math.pi


class Parent(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        log.debug("called")
        return F.relu(scaled(x)) + TABLE["a"][0]


class Child(Parent):
    def extra(self) -> object:
        return SENTINEL


def test_everything_a_class_needs_comes_with_it() -> None:
    code = Code()
    assert code.refer(Child) == "Child"
    assert {"import math as math", "import torch.nn.functional as F", "import logging"} <= (
        code.imports
    )
    names = list(code.definitions)
    assert set(names) == {"FACTOR", "scaled", "log", "TABLE", "Parent", "Child"}
    assert names.index("FACTOR") < names.index("scaled") < names.index("Parent")
    assert names[-1] == "Child"
    assert code.left_out == {"SENTINEL"}
    scope: dict[str, object] = {}
    exec(code.text(), scope)  # noqa: S102  (our own text)
    made = scope["Child"]()
    x = torch.rand(3)
    assert torch.equal(made(x), Child()(x))


def test_what_a_library_has_is_imported() -> None:
    code = Code()
    assert code.refer(nn.Linear) == "Linear"
    assert code.imports == {"from torch.nn.modules.linear import Linear"}
    assert code.refer(int) == "int"
    assert code.definitions == {}
    assert not is_users(nn.Linear)
    assert is_users(Child)


def test_a_class_within_a_function_brings_what_is_around_it() -> None:
    offset = 3

    class Inner(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x + offset

    code = Code()
    code.refer(Inner)
    assert code.definitions["offset"] == "offset = 3"
    scope: dict[str, object] = {}
    exec(code.text(), scope)  # noqa: S102  (our own text)
    assert scope["Inner"]()(torch.zeros(1)).item() == 3


def test_code_without_a_source_is_refused() -> None:
    scope: dict[str, object] = {"__name__": __name__}
    exec("class Typed:\n    pass", scope)  # noqa: S102  (stands for a prompt)
    with pytest.raises(UsageError, match="put it in a file"):
        Code().refer(scope["Typed"])


def test_a_file_that_was_imported_twice_has_one_class_of_each_name(tmp_path: Path) -> None:
    file = tmp_path / "twice_imported.py"
    file.write_text(
        "import torch\n\n\nclass Part(torch.nn.Module):\n    pass\n\n\n"
        "class Whole(torch.nn.Module):\n    kind = Part\n",
        "utf-8",
    )
    modules = []
    for _ in range(2):
        spec = importlib.util.spec_from_file_location(file.stem, file)
        assert spec is not None
        assert spec.loader is not None
        modules.append(importlib.util.module_from_spec(spec))
        sys.modules[file.stem] = modules[-1]
        spec.loader.exec_module(modules[-1])
    try:
        code = Code()
        code.refer(modules[0].Part)
        code.refer(modules[0].Whole)  # its names are found in the second
    finally:
        del sys.modules[file.stem]
    assert [*code.definitions] == ["Part", "Whole"]
