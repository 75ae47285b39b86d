"""Fit the grids of a decoder's weights to texts, one layer after the other.

A layer sees what the layers before it give with their weights on their grids already, so that
it makes up for some of their error. In memory are the second moments of one layer's inputs.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any, cast

import torch
from torch import nn

from torchferry.deployer.sensitivity import parameters_by_name, replaced_weight
from torchferry.quantizer.gptq import fit_grid
from torchferry.quantizer.grid import Grid
from torchferry.quantizer.linears import Linear
from torchferry.quantizer.recipe import Recipe
from torchferry.values.fast_path import disable_fast_paths

__all__ = ["find_layers", "fit_grids"]


def find_layers(model: nn.Module) -> nn.ModuleList | None:
    """The list of a decoder's layers: the longest list of modules; ``None`` if there is none."""
    lists = [module for module in model.modules() if isinstance(module, nn.ModuleList)]
    return max(lists, key=len, default=None)


def fit_grids(
    model: Any,
    linears: Sequence[Linear],
    recipe: Recipe,
    rows: Sequence[torch.Tensor],
    *,
    wide: Collection[str] = (),
    begin: Callable[[str], object] = lambda _: None,
) -> dict[str, Grid]:
    """Grids by the weight's name, for the weights in the layers of a decoder.

    Args:
        model: of transformers; its weights are as before when this returns.
        linears: of its graph.
        recipe: bits and block.
        rows: tokens of the texts, (1, sequence).
        wide: names of weights that keep 8 bits and are not fitted.
        begin: is given the name of each step.
    """
    layers = find_layers(model)
    if layers is None:
        return {}
    names = {id(parameter): name for name, parameter in parameters_by_name(model).items()}
    by_name = {linear.name: linear for linear in linears if linear.name not in wide}
    length = rows[0].shape[1]
    ids = torch.cat([row for row in rows if row.shape[1] == length])
    grids: dict[str, Grid] = {}
    with torch.no_grad(), disable_fast_paths(), ExitStack() as quantized:
        calls = _calls(model, layers, ids)
        hidden = calls[0][0]
        for number, (layer, (_, others, named)) in enumerate(zip(layers, calls, strict=True)):
            begin(f"calibrate layer {number + 1} of {len(layers)}")
            run = partial(layer, hidden, *others, **named)
            owned = {
                module: by_name[names[id(module.weight)]]
                for module in layer.modules()
                if names.get(id(getattr(module, "weight", None))) in by_name
            }
            for module, moments in _moments(list(owned), run).items():
                linear, parameter = owned[module], cast("nn.Parameter", module.weight)
                matrix = linear.rows(0, linear.shape[0])
                grid = fit_grid(matrix, moments.numpy(), recipe.bits, recipe.block)
                grids[linear.name] = grid
                quantized.enter_context(replaced_weight(parameter, linear, grid))
            result = run()
            hidden = result[0] if isinstance(result, tuple) else result
    return grids


def _calls(
    model: Any, layers: nn.ModuleList, ids: torch.Tensor
) -> list[tuple[torch.Tensor, tuple[Any, ...], dict[str, Any]]]:
    """What each layer is called with: hidden states (of the first alone), and all else."""
    calls: list[Any] = []

    def record(_: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        named = dict(kwargs)
        hidden = args[0] if args else named.pop("hidden_states")
        named.pop("hidden_states", None)
        calls.append((hidden if not calls else None, args[1:], named))

    with ExitStack() as stack:
        for layer in layers:
            handle = layer.register_forward_pre_hook(record, with_kwargs=True)
            stack.callback(handle.remove)
        model(input_ids=ids, use_cache=False)
    return calls


def _moments(
    modules: Sequence[nn.Module], run: Callable[[], object]
) -> dict[nn.Module, torch.Tensor]:
    """Second moments of the inputs of some modules, gathered while something runs."""
    moments: dict[nn.Module, torch.Tensor] = {}
    shared: dict[int, torch.Tensor] = {}  # q, k and v read the same values
    alive: list[Any] = []

    def gather(module: nn.Module, args: tuple[Any, ...]) -> None:
        x = args[0]
        if id(x) not in shared:
            alive.append(x)  # so that no other value gets its number
            flat = x.reshape(-1, x.shape[-1]).float()
            shared[id(x)] = flat.T @ flat / len(flat)
        found = shared[id(x)]
        moments[module] = moments[module] + found if module in moments else found

    with _hooked(modules, gather):
        run()
    return moments


@contextmanager
def _hooked(modules: Sequence[nn.Module], hook: Callable[..., None]) -> Any:
    with ExitStack() as stack:
        for module in modules:
            stack.callback(module.register_forward_pre_hook(hook).remove)
        yield
