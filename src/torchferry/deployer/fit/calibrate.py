"""Fit the grids of a decoder's weights to texts, one layer after the other.

A layer sees what the layers before it give with their weights on their grids already, so that
it makes up for some of their error. In memory are the second moments of one layer's inputs.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any, cast

import torch
from torch import nn

from torchferry.deployer.fit.sensitivity import replaced_weight
from torchferry.deployer.prove.reference import predict
from torchferry.quantizer.grid import Grid
from torchferry.quantizer.linears import Linear
from torchferry.quantizer.recipe import Recipe
from torchferry.quantizer.scaling import fit_together
from torchferry.values.fast_path import disable_fast_paths

__all__ = ["find_layers", "fit_grids"]


def find_layers(model: nn.Module) -> nn.ModuleList | None:
    """The longest list of modules that is in no other, as those of experts are; or ``None``."""
    lists = [module for module in model.modules() if isinstance(module, nn.ModuleList)]
    inner = {module for one in lists for module in one.modules() if module is not one}
    return max((one for one in lists if one not in inner), key=len, default=None)


def _stacks(model: Any) -> list[nn.ModuleList]:
    """The layers of a decoder, not those that see images; of an encoder-decoder both parts'."""
    config = getattr(model, "config", None)
    if getattr(config, "is_encoder_decoder", False):
        parts = [model.get_encoder(), model.get_decoder()]
    else:
        parts = [model.get_decoder() if hasattr(config, "vision_config") else model]
    return [layers for part in parts if (layers := find_layers(part)) is not None]


def fit_grids(
    model: Any,
    linears: Sequence[Linear],
    recipe: Recipe,
    rows: Sequence[torch.Tensor],
    *,
    parameters: Mapping[str, nn.Parameter],
    wide: Collection[str] = (),
    scaled: Collection[str] = (),
    begin: Callable[[str], object] = lambda _: None,
) -> dict[str, Grid]:
    """Grids by the weight's name, for the weights in the layers of a decoder, or of both parts.

    The head comes last; it is not scaled, as the embedding may be the same matrix.

    Args:
        model: of transformers; its weights are as before when this returns.
        linears: of its graph.
        recipe: bits and block.
        rows: tokens of the texts, (1, sequence).
        parameters: of the model, by the names of its graphs' weights.
        wide: names of weights that keep 8 bits and are not fitted.
        scaled: names of weights whose inputs may be scaled.
        begin: is given the name of each step.
    """
    by_name = {linear.name: linear for linear in linears if linear.name not in wide}
    names = {id(value): name for name, value in parameters.items() if name in by_name}
    length = rows[0].shape[1]
    ids = torch.cat([row for row in rows if row.shape[1] == length])
    grids: dict[str, Grid] = {}
    with torch.no_grad(), disable_fast_paths(), ExitStack() as quantized:
        for layers in _stacks(model):
            calls = _calls(model, layers, ids)
            hidden = calls[0][0]
            for number, (layer, (_, others, named)) in enumerate(zip(layers, calls, strict=True)):
                begin(f"calibrate layer {number + 1} of {len(layers)}")
                run = partial(layer, hidden, *others, **named)
                owned = _owned(layer, by_name, names)
                for module, grid in _fit_layer(owned, recipe, run, scaled=scaled):
                    linear, parameter = owned[module], cast("nn.Parameter", module.weight)
                    grids[linear.name] = grid
                    quantized.enter_context(replaced_weight(parameter, linear, grid))
                result = run()
                hidden = result[0] if isinstance(result, tuple) else result
        if grids and (owned := _owned(_head_of(model), by_name, names)):
            begin("calibrate the head")
            read = partial(_predict_each, model, rows)
            fitted = _fit_layer(owned, recipe, read, scaled=())
            grids |= {owned[module].name: grid for module, grid in fitted}
    return grids


def _owned(
    layer: nn.Module, by_name: Mapping[str, Linear], names: Mapping[int, str]
) -> dict[nn.Module, Linear]:
    """The products of a layer by the module that has the weight."""
    return {
        module: by_name[names[id(module.weight)]]
        for module in layer.modules()
        if id(getattr(module, "weight", None)) in names
    }


def _head_of(model: Any) -> nn.Module:
    find = getattr(model, "get_output_embeddings", None)
    head = None if find is None else find()
    return head if isinstance(head, nn.Module) else nn.Identity()


def _predict_each(model: Any, rows: Sequence[torch.Tensor]) -> None:
    for row in rows:  # the logits of all would be much memory
        predict(model, row, use_cache=False)


def _fit_layer(
    owned: Mapping[nn.Module, Linear],
    recipe: Recipe,
    run: Callable[[], object],
    *,
    scaled: Collection[str],
) -> Iterator[tuple[nn.Module, Grid]]:
    """The modules of a layer that were called, each with the grid of its weight."""
    groups: dict[int, list[nn.Module]] = {}
    moments = _moments(list(owned), run)
    for module, found in moments.items():
        groups.setdefault(id(found), []).append(module)  # one object if they read the same
    for modules in groups.values():
        linears = [owned[module] for module in modules]
        matrices = [one.rows(0, one.shape[0]) for one in linears]
        inputs = moments[modules[0]].numpy()
        grids = fit_together(
            matrices, inputs, recipe.bits, recipe.block,
            scaled={one.name for one in linears} <= {*scaled}, symmetric=recipe.symmetric,
        )  # fmt: skip
        yield from zip(modules, grids, strict=True)


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
        predict(model, ids, use_cache=False)
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
