"""Every environment variable torchferry reads; nothing else reads ``os.environ``."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass

__all__ = ["Config", "read_config"]


@dataclass(frozen=True)
class Config:
    """Settings taken from the environment.

    Attributes:
        no_color: ``NO_COLOR`` is set (any value, see https://no-color.org): print without colours.
        debug: ``TORCHFERRY_DEBUG`` is set and not ``0``: the command line shows whole tracebacks.
    """

    no_color: bool = False
    debug: bool = False


def read_config(environ: Mapping[str, str] | None = None) -> Config:
    """Read the settings.

    Args:
        environ: the variables; ``os.environ`` when ``None``.

    >>> read_config({"NO_COLOR": "1"})
    Config(no_color=True, debug=False)
    """
    variables = os.environ if environ is None else environ
    return Config(
        no_color=bool(variables.get("NO_COLOR")),
        debug=variables.get("TORCHFERRY_DEBUG", "0") not in ("", "0"),
    )
