"""Every environment variable torchferry reads; nothing else reads ``os.environ``."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Config", "read_config"]


@dataclass(frozen=True)
class Config:
    """Settings taken from the environment.

    Attributes:
        no_color: ``NO_COLOR`` is set (any value, see https://no-color.org): print without colours.
        debug: ``TORCHFERRY_DEBUG`` is set and not ``0``: the command line shows whole tracebacks.
        cache: ``TORCHFERRY_CACHE``: the folder of the cache, or ``0`` for no cache.
        xdg_cache_home: ``XDG_CACHE_HOME``: where caches are kept, if not in ``~/.cache``.
        compiler: ``CC``: the C compiler, for kernels of the set ``experimental``.
    """

    no_color: bool = False
    debug: bool = False
    cache: str = ""
    xdg_cache_home: str = ""
    compiler: str = "cc"

    @property
    def cache_folder(self) -> Path | None:
        """Where compiled graphs and kernels are kept; ``None`` for no cache.

        >>> Config(xdg_cache_home="/tmp/caches").cache_folder.as_posix()
        '/tmp/caches/torchferry'
        """
        if self.cache == "0":
            return None
        if self.cache:
            return Path(self.cache).expanduser()
        return Path(self.xdg_cache_home or "~/.cache").expanduser() / "torchferry"


def read_config(environ: Mapping[str, str] | None = None) -> Config:
    """Read the settings.

    Args:
        environ: the variables; ``os.environ`` when ``None``.

    >>> read_config({"NO_COLOR": "1"})
    Config(no_color=True, debug=False, cache='', xdg_cache_home='', compiler='cc')
    """
    variables = os.environ if environ is None else environ
    return Config(
        no_color=bool(variables.get("NO_COLOR")),
        debug=variables.get("TORCHFERRY_DEBUG", "0") not in ("", "0"),
        cache=variables.get("TORCHFERRY_CACHE", ""),
        xdg_cache_home=variables.get("XDG_CACHE_HOME", ""),
        compiler=variables.get("CC") or "cc",
    )
