"""The trace that `steal_forward` prints while a model runs."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable
from typing import Any

__all__ = ["Trace"]

_log = logging.getLogger("torchferry")


class Trace:
    """Prints what happens, the lines of one event in one write, so that threads do not mix.

    Args:
        describe: one line of text for any value; ``None`` prints nothing.
        verbose: tell of all that is stored too, not only of what could not be.
    """

    def __init__(self, describe: Callable[[Any], str] | None, verbose: bool = False) -> None:
        self.describe = describe
        self.verbose = verbose

    def enters(
        self, entry: str, arguments: tuple[tuple[Any, ...], dict[str, Any]] | None = None
    ) -> None:
        """A call begins: what is called, and with what unless torch.export made that up."""
        if self.describe is None:
            return
        lines = [f"+{entry}"]
        if arguments is not None:
            args, kwargs = map(self.describe, arguments)
            lines.append(f"  <- args={args} --- kwargs={kwargs}")
        _say(*lines)

    def leaves(self, name: str, outputs: Any) -> None:
        """A call ends, with what it returns."""
        if self.describe is not None:
            _say(f"  -> {self.describe(outputs)}", f"-{name}.")

    def stores(self, key: Any, size: int, value: Any) -> None:
        """A value of ``size`` bytes went into the dump."""
        if self.describe is not None and self.verbose:
            _say(f"-- stores key={key!r}, size {size // 1024}Kb -- {self.describe(value)}")

    def skips(self, key: Any, reason: str, value: Any) -> None:
        """A value did not go into the dump; a warning where nothing is printed."""
        line = f"-- skips key={key!r}, {reason}"
        if self.describe is not None:
            _say(f"{line} -- {self.describe(value)}")
        else:
            _log.warning("steal_forward: %s", line)

    def notes(self, text: str) -> None:
        """A remark on the dump as a whole."""
        if self.describe is not None and self.verbose:
            _say(f"-- {text}")


def _say(*lines: str) -> None:
    # The trace is the documented output of a public function: it is written here, not logged.
    text = "\n".join((*lines, ""))
    try:
        sys.stdout.write(text)
    except UnicodeEncodeError:  # a name that this terminal cannot show must not stop the model
        sys.stdout.write(text.encode("ascii", "backslashreplace").decode("ascii"))
