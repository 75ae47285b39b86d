"""Functions that modules call, as pieces: ``my_model.attention`` beside the submodules."""

from __future__ import annotations

import functools
import importlib
import inspect
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import torch

from torchferry.errors import UsageError

__all__ = ["Function", "find_functions", "routed"]


class Function(torch.nn.Module):
    """A function as a module, as which it can be exported alone.

    Attributes:
        place: ``module.name``, where the code that calls it finds it.
        function: what stands there.
    """

    def __init__(self, place: str) -> None:
        """Look a function up.

        Raises:
            UsageError: there is none.
        """
        super().__init__()
        self.place = place
        module, _, self.function_name = place.rpartition(".")
        try:
            self.owner = importlib.import_module(module)
            self.function: Callable[..., Any] = getattr(self.owner, self.function_name)
        except (ImportError, AttributeError, ValueError) as error:
            raise UsageError(
                f"traced_functions names {place!r}, and no function is found there: write "
                "'module.function' for the module whose code calls it by that name"
            ) from error
        try:
            signature = inspect.signature(self.function)
        except (ValueError, TypeError) as error:
            raise UsageError(
                f"traced_functions names {place!r}, which is no function written in Python: name "
                "the function around it"
            ) from error
        function = self.function

        def forward(*args: Any, **kwargs: Any) -> Any:
            return function(*args, **kwargs)

        vars(forward)["__signature__"] = signature  # exporters and pieces read it
        self.forward = forward
        self.eval()


def find_functions(places: Sequence[str]) -> list[Function]:
    """The functions of these names.

    Raises:
        UsageError: one is not there, or the names are one text.

    >>> [one.function_name for one in find_functions(["torch.nn.functional.silu"])]
    ['silu']
    """
    if isinstance(places, str):
        raise UsageError(f"traced_functions is a list of names: [{places!r}]")
    return [Function(place) for place in dict.fromkeys(places)]


@contextmanager
def routed(
    given: Sequence[Function], route: Callable[[Function, tuple[Any, ...], dict[str, Any]], Any]
) -> Iterator[None]:
    """Whoever calls the functions in the block calls ``route`` with them; then all is as before.

    Args:
        given: the functions.
        route: called with the function and the arguments; its result is returned.
    """
    with ExitStack() as stack:
        for one in given:
            stack.callback(setattr, one.owner, one.function_name, one.function)
            setattr(one.owner, one.function_name, _stand_in(one, route))
        yield


def _stand_in(
    one: Function, route: Callable[[Function, tuple[Any, ...], dict[str, Any]], Any]
) -> Callable[..., Any]:
    @functools.wraps(one.function)
    def stand_in(*args: Any, **kwargs: Any) -> Any:
        return route(one, args, kwargs)

    return stand_in
