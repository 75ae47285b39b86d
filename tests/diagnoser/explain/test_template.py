from __future__ import annotations

import ast

import pytest

from torchferry.diagnoser.explain.template import (
    CHECK,
    ENTRY,
    EXPORTS,
    HEADS,
    IMPORTS,
    METHOD,
    MORE_IMPORTS,
    OPTIONS,
    SCRIPT,
    STRICT,
)
from torchferry.diagnoser.trial.attempt import EXPORTERS


@pytest.mark.parametrize("exporter", EXPORTERS)
@pytest.mark.parametrize("entry", ["", METHOD.format(name="encode"),
                                   ENTRY.format(names="x", given="x")])  # fmt: skip
def test_every_script_is_python_and_knows_its_names(exporter: str, entry: str) -> None:
    imports = IMPORTS | MORE_IMPORTS.get(exporter, set())
    text = SCRIPT.format(
        title="M", reason="no", name="m", imports="\n".join(sorted(imports)), code="",
        model="module(torch.nn.ReLU, {}, {}, {}, {}, False)", entry=entry, args="()",
        kwargs="{}", registered="", shapes="{}", head=HEADS.get(exporter, "") + STRICT,
        export=EXPORTS[exporter].replace(OPTIONS, ", strict=True"),
        check=CHECK.format(args="()", kwargs="{}", times=1, atol=0.5),
    )  # fmt: skip
    tree = ast.parse(text)
    stored = {n.id for n in ast.walk(tree) if isinstance(n, ast.Name) and not _loads(n)}
    stored |= {n.name for n in ast.walk(tree) if isinstance(n, ast.FunctionDef | ast.ClassDef)}
    stored |= {n.arg for n in ast.walk(tree) if isinstance(n, ast.arg)}
    for line in ast.walk(tree):
        if isinstance(line, ast.Import | ast.ImportFrom):
            stored |= {one.asname or one.name.split(".")[0] for one in line.names}
    used = {n.id for n in ast.walk(tree) if isinstance(n, ast.Name) and _loads(n)}
    unknown = used - stored - set(dir(__builtins__)) - set(__builtins__)
    assert unknown <= {"__file__", "warnings"} if exporter != "torch_script" else not (
        unknown - {"__file__"}
    )  # fmt: skip


def _loads(name: ast.Name) -> bool:
    return isinstance(name.ctx, ast.Load)
