"""How much each weight costs in 4 bits: measured in PyTorch, one weight or one role at a time."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any

import torch
from torch import nn

from torchferry.deployer.prove.reference import predict
from torchferry.quantizer.choice import Unit
from torchferry.quantizer.grid import Grid, round_to_grid
from torchferry.quantizer.linears import Linear
from torchferry.quantizer.recipe import Recipe

__all__ = ["measure_sensitivity", "parameters_by_name", "replaced_weight", "role_of"]

_TOKENS = 128  # of the texts that each measurement runs on
_NUMBER = re.compile(r"\.\d+(?=\.)")


def role_of(name: str) -> str:
    """A weight's name without the number of its layer.

    >>> role_of("model.layers.11.mlp.down_proj.weight")
    'model.layers.mlp.down_proj.weight'
    """
    return _NUMBER.sub("", name)


def parameters_by_name(model: nn.Module) -> dict[str, nn.Parameter]:
    """Every parameter, tied ones under each of their names."""
    return dict(model.named_parameters(remove_duplicate=False))


@contextmanager
def replaced_weight(parameter: nn.Parameter, linear: Linear, grid: Grid) -> Iterator[None]:
    """Let a parameter have the values of a grid for a while."""
    values = torch.from_numpy(grid.values())
    kept = parameter.data
    parameter.data = (values if linear.as_stored else values.T).to(kept.dtype).contiguous()
    try:
        yield
    finally:
        parameter.data = kept


def measure_sensitivity(
    model: Any,
    linears: Sequence[Linear],
    recipe: Recipe,
    rows: Sequence[torch.Tensor],
    parameters: Mapping[str, nn.Parameter],
    *,
    seconds: float = 120.0,
) -> list[Unit]:
    """The KL divergence that each weight causes alone when it is stored in few bits.

    Roles (``v_proj`` of every layer) are measured first. The roles that cost most are then taken
    apart layer by layer, as long as there is time: the others stay one unit.

    Args:
        model: of transformers, with float weights; left as it is.
        linears: of its graph.
        recipe: bits and block.
        rows: tokens (1, sequence) to measure on: the first 128 are used.
        parameters: of the model, by the names of its graph's weights.
        seconds: for taking roles apart.

    Returns:
        Units that cover every weight once, in the graph's order.
    """
    run = partial(_log_probabilities, model, rows[0][:, :_TOKENS])
    wanted = run()

    def cost(group: Sequence[Linear]) -> float:
        return _with_all(group, parameters, recipe, lambda: _kl(wanted, run()))

    roles: dict[str, list[Linear]] = {}
    for linear in linears:
        if linear.name in parameters:
            roles.setdefault(role_of(linear.name), []).append(linear)
    costs = {role: cost(group) for role, group in roles.items()}
    units: dict[str, list[Unit]] = {}
    began = time.monotonic()
    for role in sorted(roles, key=lambda name: -costs[name]):
        group = roles[role]
        if len(group) == 1 or time.monotonic() - began > seconds:
            units[role] = [_unit(role, group, costs[role], recipe)]
        else:
            units[role] = [_unit(one.name, [one], cost([one]), recipe) for one in group]
    return [unit for role in roles for unit in units[role]]


def _log_probabilities(model: Any, ids: torch.Tensor) -> torch.Tensor:
    with torch.no_grad():
        logits = predict(model, ids)[0]
    return logits.float().log_softmax(-1)


def _with_all(
    group: Sequence[Linear],
    parameters: Mapping[str, nn.Parameter],
    recipe: Recipe,
    run: Callable[[], float],
) -> float:
    """What ``run`` gives while every weight of a group is on the nearest grid."""
    with ExitStack() as stack:
        for linear in group:
            grid = round_to_grid(linear.rows(0, linear.shape[0]), recipe.bits, recipe.block)
            stack.enter_context(replaced_weight(parameters[linear.name], linear, grid))
        return run()


def _kl(wanted: torch.Tensor, ours: torch.Tensor) -> float:
    return float((wanted.exp() * (wanted - ours)).sum(-1).mean())


def _unit(name: str, group: Sequence[Linear], cost: float, recipe: Recipe) -> Unit:
    elements = sum(one.shape[0] * one.shape[1] for one in group)
    zeros = elements // recipe.block  # one byte each in 8 bits
    extra = elements * (8 - recipe.bits) // 8 + zeros - (0 if recipe.symmetric else zeros // 2)
    return Unit(name, tuple(one.name for one in group), cost, extra, elements)
