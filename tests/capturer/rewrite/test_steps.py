import ast

import pytest

from torchferry.capturer.rewrite.names import DISPATCH
from torchferry.capturer.rewrite.steps import leaves_early, over_text, without_jumps


@pytest.mark.parametrize(
    ("over", "text"),
    [
        ("range(n)", "d.walk_range(n)"),
        ("range(1, x.shape[0], 2)", "d.walk_range(1, x.shape[0], 2)"),
        ("x", "d.walk(x)"),
        ("x[1:]", "d.walk(x[1:])"),
        ("x.T", "d.walk(x.T)"),
        ("x.transpose(0, 1)", "d.walk(x.transpose(0, 1))"),
        ("x.unbind(1)", "d.unbound(x, 1)"),
        ("torch.unbind(x, dim=-2)", "d.unbound(x, dim=-2)"),
        ("x.split(4, 1)", "d.sections(x, 4, 1)"),
        ("list(reversed(range(n)))", "d.reversed_(d.walk_range(n))"),
        ("enumerate(zip(x, y), 1)", "d.enumerated(d.zipped(d.walk(x), d.walk(y)), 1)"),
        ("zip(x, y, strict=True)", "d.zipped(d.walk(x), d.walk(y), strict=True)"),
        ("self.layers", ""),
        ("x.items()", ""),
        ("range(*n)", ""),
        ("(1, 2)", ""),
    ],
)  # fmt: skip
def test_what_a_loop_runs_over(over, text):
    node = ast.parse(over, mode="eval").body
    assert over_text(node, ()).replace(DISPATCH, "d") == text
    assert over_text(ast.parse("range(n)", mode="eval").body, ("range",)) == ""


def jumping(text):
    return ast.parse(f"for t in x:\n    {text}").body[0].body


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("if a: continue\n    b()", "if a:\n    pass\nelse:\n    b()"),
        ("if a: break\n    b()", "if a:\n    end = True\nelse:\n    b()"),
        ("c()\n    if a:\n        c()\n        break\n    b()",
         "c()\nif a:\n    c()\n    end = True\nelse:\n    b()"),
        ("break\n    b()", "end = True"),
        ("for u in y:\n        break", "for u in y:\n    break"),
    ],
)  # fmt: skip
def test_a_loop_without_jumps(text, want):
    body = without_jumps(jumping(text), "end")
    assert "\n".join(map(ast.unparse, map(ast.fix_missing_locations, body))) == want
    assert not leaves_early(body)


def test_who_leaves_early():
    assert leaves_early(jumping("if a:\n        break"))
    assert not leaves_early(jumping("if a:\n        continue"))
    assert leaves_early(jumping("if a:\n        continue"), ast.Continue)
    assert not leaves_early(jumping("while a:\n        break"))
