"""What ``MODEL`` on the command line stands for: a model and input sets that fit it."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import nn

from torchferry.capturer import accept_aliases
from torchferry.dims import Legal
from torchferry.errors import UsageError
from torchferry.graph.reference import Region
from torchferry.observer import Observation
from torchferry.observer.given import Stated, ask_maker, state_legal
from torchferry.observer.maker import Maker
from torchferry.seams.pytorch import set_buffer
from torchferry.sources.arguments import Arguments, as_input_sets, check_inputs
from torchferry.sources.factory import make_inputs
from torchferry.sources.kinds import read_model
from torchferry.sources.mapped import MappedFile
from torchferry.values.flatten import map_leaves
from torchferry.zoo.tasks import input_sets
from torchferry.zoo.unrun import unrun_input_sets

__all__ = ["DTYPES", "Source", "load_source"]

DTYPES = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}
"""What ``--dtype`` accepts."""


@dataclass(frozen=True)
class Source:
    """A model that is ready to be run and exported.

    Attributes:
        title: as the user named it: ``zoo:tiny-llm``.
        model: in eval mode; of a ``.pt2`` file, the module of its program.
        input_sets: arguments that fit ``forward``, the cache under the name that it has there.
        program: what the ``.pt2`` file holds, else ``None``.
        files: the mapped files in which the weights lie, when that was asked for.
        training: whether it came in training mode; it is in eval mode now.
        legal: the sizes that are legal, as the user states them.
        seen: the input sets and the function of sizes that gave them, if one did.
        note: what a user has to know of the weights: that they are random, say.
    """

    title: str
    model: nn.Module
    input_sets: list[Arguments]
    program: torch.export.ExportedProgram | None = None
    files: tuple[MappedFile, ...] = ()
    training: bool = False
    legal: Legal = field(default_factory=Legal)
    seen: Observation | None = None
    note: str = ""

    @property
    def regions(self) -> list[Region]:
        """The mapped files as an ONNX model refers to them."""
        return [Region(f.path, f.address, f.size) for f in self.files]

    def observed(self, seen: Observation) -> Observation:
        """Calls of the input sets in their order, with what else is known of the inputs."""
        if self.seen is None or self.seen.maker is None:
            return state_legal(seen, self.legal) if self.legal else seen
        calls = [
            replace(call, sizes=one.sizes)
            for call, one in zip(seen.calls, self.seen.calls, strict=True)
        ]
        return replace(seen, calls=calls, legal=self.seen.legal, maker=self.seen.maker)


def load_source(
    text: str,
    *,
    inputs: str | None = None,
    sizes: Stated = None,
    dtype: str | None = None,
    least: int = 2,
    mapped: bool = False,
    run: bool = True,
) -> Source:
    """Load a model with its inputs.

    Args:
        text: one of the forms of `torchferry.sources.kinds.KINDS`.
        inputs: ``FILE.py:NAME``, a list, or a function that returns the input sets or is one of
            sizes: see `make_inputs`. ``None``: those that come with the model, or are made for
            its class.
        sizes: the legal sizes, as `Legal.of` takes them.
        dtype: a key of `DTYPES`, for the floating point weights and inputs; ``None`` leaves them.
        least: how many input sets are needed; sizes that differ show which dimensions vary. A
            ``.pt2`` file knows them already: one set is enough.
        mapped: leave the weights of a Hugging Face folder in its files.
        run: whether the model may be run to make inputs for it; else their values mean nothing.

    Raises:
        UsageError: ``text`` stands for nothing, the user's code raises, or inputs do not fit.
    """
    if dtype is not None and dtype not in DTYPES:
        raise UsageError(f"there is no dtype {dtype!r}; give one of {', '.join(DTYPES)}")
    loaded = read_model(text, mapped=mapped)
    model, sets = loaded.model, loaded.sets
    if dtype is not None:
        if loaded.program is not None:
            raise UsageError(f"{text} is exported already and keeps its dtypes; leave out --dtype")
        _cast(model, DTYPES[dtype])
    origin, legal = text, Legal.of(sizes)
    if inputs is not None:
        sets, origin = make_inputs(inputs, model, legal), f"--inputs {inputs}"
    found, seen = _sets(sets, model, dtype, origin, run=run)
    needed = least if loaded.program is None else min(least, 1)
    if len(found) < needed:
        raise UsageError(
            f"{origin} gave {len(found)} input set{'s' * (len(found) != 1)}, and {needed} or more "
            "of different sizes are needed, to see which dimensions vary"
        )
    if loaded.check is not None and run and dtype is None:
        loaded.check(found)
    return Source(
        text, model, found, loaded.program, loaded.files, loaded.training, legal, seen, loaded.note
    )


def _sets(
    sets: Any, model: nn.Module, dtype: str | None, origin: str, *, run: bool
) -> tuple[list[Arguments], Observation | None]:
    """Input sets that fit the model, and what a function of sizes that gave them tells of them."""
    if isinstance(sets, Maker):
        maker = replace(sets, finish=lambda one: _fitting([one], model, dtype)[0])
        seen = ask_maker(model, maker, run=run)
        return [(call.args, call.kwargs) for call in seen.calls], seen
    if sets is None:
        sets = input_sets(model) if run else unrun_input_sets(model)
    return _fitting(as_input_sets(sets, origin), model, dtype), None


def _fitting(sets: list[Arguments], model: nn.Module, dtype: str | None) -> list[Arguments]:
    """The input sets under forward's names and in the dtype, each checked against ``forward``."""
    result = []
    for args, kwargs in sets:
        renamed = accept_aliases(model, kwargs)
        check_inputs(model, args, renamed)
        result.append((args, renamed))
    if dtype is None:
        return result
    cast: list[Arguments] = map_leaves(lambda leaf: _to(leaf, DTYPES[dtype]), result)
    return cast


def _to(leaf: Any, dtype: torch.dtype) -> Any:
    floating = isinstance(leaf, torch.Tensor) and leaf.is_floating_point()
    return leaf.to(dtype) if floating else leaf


def _cast(model: nn.Module, dtype: torch.dtype) -> None:
    """Cast a model in place; tables that transformers computes in float32 stay so.

    ``from_pretrained(dtype=...)`` does the same: rotary frequencies, which are in no checkpoint,
    would lose their precision.
    """
    is_pretrained = any(cls.__name__ == "PreTrainedModel" for cls in type(model).__mro__)
    saved = set(model.state_dict())
    tables = {
        name: buffer
        for name, buffer in model.named_buffers()
        if is_pretrained and name not in saved
    }
    model.to(dtype)
    for name, buffer in tables.items():
        owner, _, own_name = name.rpartition(".")
        set_buffer(model.get_submodule(owner), own_name, buffer)
