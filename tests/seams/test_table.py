"""Every seam is there in the installed versions, and a missing one is told in a sentence."""

import ast
import re
from pathlib import Path

import pytest
import torch

import torchferry.seams
from torchferry.converter.lowering import absent
from torchferry.errors import UsageError
from torchferry.seams import operators, table
from torchferry.seams.operators import Absent
from torchferry.seams.table import GONE, SEAMS, find, lacking, probe, reach
from torchferry.seams.versions import installed, numbers

ROOM = Path(torchferry.seams.__file__).parent
CONVERTER = ROOM.parent / "converter"
OPERATORS = {"aten", "prims", "higher_order", "quantized_decomposed"}


@pytest.mark.parametrize("name", SEAMS)
def test_the_installed_version_has_it(name):
    if name.startswith("transformers"):
        pytest.importorskip("transformers")
    find(name)


@pytest.mark.parametrize("name", SEAMS)
def test_a_name_that_is_gone_is_told_in_a_sentence(name, monkeypatch):
    def gone(_):
        raise LookupError(name)

    monkeypatch.setattr(table, "find", gone)
    assert probe(name, "default") == "default"
    with pytest.raises(UsageError) as caught:
        reach(name)
    said, library = str(caught.value), name.split(".")[0]
    assert "\n" not in said
    for part in (name, SEAMS[name].purpose, f'pip install "{library}>=', f"{library} "):
        assert part in said


@pytest.mark.parametrize(
    "name",
    ["torch._no", "torch._ops.No", "no_library.x", "torch.nn.Module._no", "torch.nn.Linear.a.b"],
)
def test_what_nobody_has_is_not_found(name):
    with pytest.raises(LookupError):
        find(name)


def test_the_error_says_what_is_installed():
    said = str(lacking("torch._ops.OpOverload"))
    assert said.startswith(f"torch {installed('torch')} has no torch._ops.OpOverload")


def test_every_seam_is_used_and_no_other_name():
    texts = {f.name: f.read_text("utf-8") for f in ROOM.glob("*.py") if f.name != "table.py"}
    text = "\n".join(texts.values())
    unused = [name for name in SEAMS if name.rsplit(".", 1)[-1] not in text]
    assert not unused
    names = set(re.findall(r"(?:reach|probe|lacking)\(\s*\"([\w.]+)\"", text))
    assert len(names) > 20
    assert names <= set(SEAMS)


def chains():
    """Every operator that the converter spells: ``aten.add.Tensor`` in some file."""
    for file in CONVERTER.rglob("*.py"):
        tree = ast.parse(file.read_text("utf-8"))
        bound = {
            alias.asname or alias.name: alias.name
            for node in ast.walk(tree)
            if isinstance(node, ast.ImportFrom) and node.module == operators.__name__
            for alias in node.names
        }
        inner = {id(n.value) for n in ast.walk(tree) if isinstance(n, ast.Attribute)}
        for node in ast.walk(tree):
            root, *rest = ast.unparse(node).split(".") if isinstance(node, ast.Attribute) else [""]
            if id(node) not in inner and bound.get(root) in OPERATORS and rest[0].isidentifier():
                yield bound[root], tuple(part for part in rest if part.isidentifier())


def test_every_operator_that_the_converter_names_is_there_or_known_to_be_gone():
    missing, count = set(absent()), 0
    for namespace, parts in chains():
        count += 1
        found = getattr(operators, namespace)
        for part in parts[:2]:
            found = getattr(found, part)
        if isinstance(found, Absent):
            missing.add(found.name)
    assert count > 900
    here = numbers(torch.__version__)
    assert missing == {name for name, version in GONE.items() if here >= numbers(version)}
