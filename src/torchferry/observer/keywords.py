"""What ``forward`` takes as ``**kwargs``, as parameters of their own: torch.export needs them."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from keyword import iskeyword
from typing import Any

import torch

__all__ = ["defaults_of", "explicit_keywords"]


@contextmanager
def explicit_keywords(
    model: torch.nn.Module, names: Collection[str], method_name: str = "forward"
) -> Iterator[None]:
    """Give a method a parameter for each of these keywords, while the block runs.

    torch.export 2.13 takes no dynamic shapes for what goes to ``**kwargs`` ("Must provide a
    tree_name when there might be a mismatch"), not even None for a constant; and ``generate()``
    passes constants that way.

    Args:
        model: the module; its method is as it was afterwards.
        names: keywords that are given; those that are parameters already are left alone.
        method_name: of the method that is exported.

    >>> class Scale(torch.nn.Module):
    ...     def forward(self, x, **more):
    ...         return x * more["scale"]
    >>> model = Scale()
    >>> with explicit_keywords(model, ["scale"]):
    ...     print(inspect.signature(model.forward))
    (x, *, scale)
    >>> print(inspect.signature(model.forward))
    (x, **more)
    """
    method = getattr(model, method_name)
    signature = inspect.signature(method)
    extra = [name for name in names if name not in signature.parameters]
    if not extra or not all(name.isidentifier() and not iskeyword(name) for name in extra):
        yield  # a name that no parameter can have: torch.export is to say what it makes of it
        return

    @functools.wraps(method)
    def explicit(*args: Any, **kwargs: Any) -> Any:
        return method(*args, **kwargs)

    kept = [p for p in signature.parameters.values() if p.kind is not p.VAR_KEYWORD]
    added = [inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY) for name in extra]
    explicit.__signature__ = signature.replace(  # type: ignore[attr-defined]  # read by inspect
        parameters=[*kept, *added]
    )
    own = vars(model).get(method_name)
    setattr(model, method_name, explicit)
    try:
        yield
    finally:
        delattr(model, method_name)
        if own is not None:
            setattr(model, method_name, own)


def defaults_of(signature: inspect.Signature) -> dict[str, Any]:
    """The defaults of parameters, so that a constant which differs must be given in every call."""
    parameters = signature.parameters.items()
    return {name: p.default for name, p in parameters if p.default is not p.empty}
