"""What may be watched and captured: a module with its code, however it is called."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

import torch
from torch.nn.parameter import is_lazy

from torchferry.errors import UsageError
from torchferry.seams.pytorch import hooks_of, original_of
from torchferry.values.attributes import attributes_kept
from torchferry.values.clone import clone
from torchferry.values.describe import string_type
from torchferry.values.difference import max_diff
from torchferry.values.kinds import attempt
from torchferry.values.randomness import random_kept
from torchferry.values.source_line import package_of

__all__ = ["check_module", "prepare_module"]

_LIBRARIES = ("torch", "transformers", "diffusers", "accelerate", "peft", "timm")


def check_module(model: Any, asker: str) -> None:
    """Refuse what is no module, or one whose code is gone.

    Args:
        model: anything.
        asker: the function that was given it.

    Raises:
        UsageError: it is no module, or of ``torch.jit`` or ``torch.compile``.
    """
    if not isinstance(model, torch.nn.Module):
        raise UsageError(f"{asker} takes a module, not {string_type(model)}")
    if isinstance(model, torch.jit.ScriptModule):
        raise UsageError(
            f"{asker} cannot take a {type(model).__name__} of torch.jit, which has no Python "
            "code: give the module it was made of, or the file that its save() writes"
        )
    if (original := original_of(model)) is not None:
        raise UsageError(
            f"{asker} cannot take the torch.compile of a {type(original).__name__}: give "
            "model._orig_mod, which is the module itself"
        )


def prepare_module(
    model: Any, asker: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> None:
    """Refuse what cannot be captured; give parameters their sizes that get them in a first call.

    Args:
        model: see `check_module`.
        asker: the same.
        args: of a call.
        kwargs: of the same.

    Raises:
        UsageError: see `check_module`; or ``model(x)`` is another thing than ``model(x=x)``.
    """
    check_module(model, asker)
    _initialize(model, args, kwargs)
    _check_forms(model, args, kwargs)


def _initialize(model: torch.nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
    """Call a model whose parameters get their sizes in a first call."""
    if any(is_lazy(one) for one in (*model.parameters(), *model.buffers())):
        with torch.no_grad(), random_kept():
            model(*clone(args), **clone(dict(kwargs)))


def _check_forms(model: torch.nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
    """Refuse a model whose hooks or decorators make ``model(x)`` other than ``model(x=x)``.

    A program takes both for the same. Decorators of libraries are known not to.

    Raises:
        UsageError: they do, of this call.
    """
    if not any(hooks for _, hooks, _ in hooks_of(model)) and not _is_decorated(model):
        return
    signature = inspect.signature(model.forward)
    try:
        bound = signature.bind(*args, **kwargs)
    except TypeError:  # which the call itself tells
        return
    positional = bound.args, bound.kwargs
    free = {inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY}
    if {signature.parameters[name].kind for name in bound.arguments} - free:
        return  # there is one form
    with torch.no_grad(), random_kept(), attributes_kept(model):
        first, failed = attempt(_called, model, positional)
        second, error = attempt(_called, model, ((), dict(bound.arguments)))
    if failed is not None and error is not None:
        return
    if failed is not None or error is not None or max_diff(first, second).abs > 0:
        raise UsageError(
            f"{type(model).__name__} has hooks or a decorator of forward that make model(x) "
            "another thing than model(x=x), and a program cannot tell the two: let them treat "
            "both alike, or write what they do into forward"
        )


def _called(model: torch.nn.Module, call: tuple[tuple[Any, ...], Mapping[str, Any]]) -> Any:
    args, kwargs = clone(call)
    return model(*args, **kwargs)


def _is_decorated(model: torch.nn.Module) -> bool:
    wrapper = getattr(model.forward, "__func__", model.forward)
    code: Any = getattr(wrapper, "__code__", None)
    if code is None or not hasattr(wrapper, "__wrapped__"):
        return False
    return package_of(code.co_filename) not in _LIBRARIES
