"""The rewrites: stage by stage, with the arrow, the reasons to decline and the measured gain."""

from __future__ import annotations

import ast
import inspect
import json
import textwrap
from functools import cache
from pathlib import Path

from rst import code, heading, prose, table

from torchferry.optimizer.plan import STAGES, Stage
from torchferry.optimizer.rule import Rule

__all__ = ["declines", "text"]

ROOT = Path(__file__).resolve().parents[2]


def text() -> str:
    """A section a stage, in the order the stages are run."""
    return "".join(_stage(stage) for stage in STAGES)


def _stage(stage: Stage) -> str:
    title = heading(f"{stage.name} (set {stage.group})", "-", f"stage-{stage.name.lower()}")
    if stage.act is not None:
        about = " ".join((inspect.getdoc(stage.act) or "").split("\n\n")[0].split())
        return f"{title}{prose(about)}\n\n"
    rows = [(_name(rule), code(rule.arrow), _reasons(rule), _gain(rule)) for rule in stage.rules]
    return title + table(("rule", "rewrite", "declines when", "gain"), rows, "18 40 28 14")


def _name(rule: Rule) -> str:
    where = "" if len(rule.processors) > 1 else f" ({', '.join(rule.processors)} only)"
    return f"{code(rule.name)}{where}"


def _reasons(rule: Rule) -> str:
    return "; ".join(prose(reason) for reason in declines(type(rule))) or "–"


def declines(rule: type[Rule]) -> list[str]:
    """Return the reasons in the source of a check and the functions of its file that it calls."""
    module = inspect.getmodule(rule)
    found: dict[str, None] = {}
    pending, done = [rule.check, rule.rewrite], set()
    while pending:
        function = pending.pop(0)
        if function in done or function in (Rule.check, Rule.rewrite):
            continue
        done.add(function)
        for node in ast.walk(ast.parse(textwrap.dedent(inspect.getsource(function)))):
            if not isinstance(node, ast.Call):
                continue
            called = ast.unparse(node.func)
            if called == "require" and len(node.args) > 1:
                found |= dict.fromkeys(_text(node.args[1]))
            elif called == "Declined" and node.args:
                found |= dict.fromkeys(_text(node.args[0]))
            inner = getattr(module, called, None)
            if inspect.isfunction(inner) and inner.__module__ == rule.__module__:
                pending.append(inner)
    return list(found)


def _text(node: ast.expr) -> list[str]:
    if isinstance(node, ast.Constant):
        return [str(node.value)]
    if isinstance(node, ast.JoinedStr):
        parts = [str(p.value) if isinstance(p, ast.Constant) else "…" for p in node.values]
        return ["".join(parts)]
    if isinstance(node, ast.IfExp):
        return _text(node.body) + _text(node.orelse)
    return []


@cache
def _gains() -> dict[str, list[float]]:
    rows = json.loads((ROOT / "benchmarks/runtime_rules.json").read_text("utf-8"))
    return {row["rule"]: list(row["gains"].values()) for row in rows}


def _gain(rule: Rule) -> str:
    gains = _gains().get(rule.name)
    if not gains:
        return "–"
    least, most = min(gains), max(gains)
    return f"{least:.2f} ×" if f"{least:.2f}" == f"{most:.2f}" else f"{least:.2f} to {most:.2f} ×"
