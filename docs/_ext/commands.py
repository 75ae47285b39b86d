"""The command line's reference, from the commands themselves."""

from __future__ import annotations

from enum import Enum
from typing import Any

import typer.main
from rst import code, heading, prose, table

from torchferry.cli.main import app

__all__ = ["text"]


def text() -> str:
    """Every command: usage, what it does, arguments and options."""
    group: Any = typer.main.get_command(app)
    return "".join(_command(name, command) for name, command in sorted(group.commands.items()))


def _command(name: str, command: Any) -> str:
    arguments = [one for one in command.params if one.param_type_name == "argument"]
    options = [one for one in command.params if one.param_type_name == "option"]
    usage = " ".join(["torchferry", name, *(_metavar(one) for one in arguments), "[OPTIONS]"])
    paragraphs = [prose(" ".join(part.split())) for part in (command.help or "").split("\n\n")]
    rows = [(code(_metavar(one)), prose(one.help or ""), "") for one in arguments]
    rows += [(_spelling(one), prose(_help(one)), _default(one)) for one in options]
    return (
        heading(f"torchferry {name}", "-", f"command-{name}")
        + f".. code-block:: text\n\n   {usage}\n\n"
        + "\n\n".join(paragraphs)
        + "\n\n"
        + table(("argument or option", "meaning", "default"), rows, "30 55 15")
    )


def _metavar(parameter: Any) -> str:
    return str(parameter.metavar or parameter.name.upper())


def _spelling(option: Any) -> str:
    names = [*option.opts, *option.secondary_opts]
    if option.is_flag:
        return ", ".join(code(name) for name in names)
    kind = getattr(option.type_descriptor, "annotation", None)
    choices = kind if isinstance(kind, type) and issubclass(kind, Enum) else None
    value = "|".join(_word(one) for one in choices) if choices else option.metavar or "VALUE"
    return ", ".join(code(name) for name in names) + f" {code(value)}"


def _help(option: Any) -> str:
    return str(option.help or "").split("[default:")[0].strip()


def _default(option: Any) -> str:
    said = str(option.help or "").partition("[default:")[2].rstrip("] ")
    if said:
        return prose(said.strip())
    if option.required:
        return "required"
    if option.default is None or option.default is False or option.default == ():
        return ""
    return code(_word(option.default)) if option.default is not True else "on"


def _word(value: Any) -> str:
    return str(value.value) if isinstance(value, Enum) else str(value)
