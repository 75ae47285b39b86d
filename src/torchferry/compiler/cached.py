"""A graph whose session comes from the disk."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any

import torch

from torchferry.compiler import cache
from torchferry.compiler.key import content_key
from torchferry.compiler.program import Program
from torchferry.compiler.record import Settings
from torchferry.compiler.session import TensorSession, providers_for
from torchferry.compiler.weights import FrozenWeights, can_freeze
from torchferry.errors import RunError

__all__ = ["CachedGraph", "entry_key"]

_log = logging.getLogger("torchferry")

_CPU = torch.device("cpu")


def entry_key(key: str, weights: Sequence[torch.Tensor]) -> str | None:
    """The name of an entry: of the graph, and of the content of its weights."""
    content = content_key(weights)
    return None if content is None else f"{key}-{content}"


class CachedGraph:
    """A graph that dynamo captured, called with its arguments one by one.

    Weights that were never compiled for, by this process or another, have it compiled.
    """

    def __init__(
        self, key: str, frozen: Sequence[int], settings: Settings, otherwise: Callable[..., Any]
    ) -> None:
        """Prepare a graph.

        Args:
            key: the graph's.
            frozen: positions of the arguments that are weights of its sessions.
            settings: what the user asked for.
            otherwise: is called when there is no entry for the weights, then and from then on.
        """
        self._key = key
        self._frozen = tuple(frozen)
        self._settings = settings
        self._otherwise = otherwise
        self._programs: list[Program] = []
        self._gone = False

    def load(self, args: Sequence[Any]) -> Program | None:
        """Make the session for the weights among the arguments; ``None`` when none is kept."""
        tensors = {place: args[place] for place in self._frozen}
        if not all(can_freeze(tensor) for tensor in tensors.values()):
            return None
        key = entry_key(self._key, list(tensors.values()))
        entry = None if key is None else cache.find(key)
        if entry is None:
            return None
        providers = providers_for(_CPU, self._settings.providers)
        try:
            session = TensorSession(
                entry.model, providers, _CPU, entry.weights(tensors),
                options=self._settings.session_options,
            )  # fmt: skip
        except (RunError, RuntimeError, LookupError, TypeError, ValueError) as error:
            # An entry that somebody else wrote may say anything of how weights lie.
            _log.info("a graph from the cache is made again: %s", error)
            return None
        weights = FrozenWeights(self._frozen, args)
        self._programs.append(Program(entry.feeds, entry.results, session, weights))
        level = logging.INFO if self._settings.verbose else logging.DEBUG
        _log.log(level, "a graph comes from the cache")
        return self._programs[-1]

    def __call__(self, *args: Any) -> Any:
        """The results of the graph."""
        if self._gone:
            return self._otherwise(*args)
        program = next((p for p in self._programs if p.weights.unchanged(args)), None)
        program = program or self.load(args)
        if program is None:
            self._gone, self._programs = True, []
            return self._otherwise(*args)
        try:
            return program(args)
        except RunError:
            self._gone = True
            return self._otherwise(*args)
