"""The models that ``zoo:NAME`` stands for, and what there is to choose from.

A name is ``FAMILY``, ``FAMILY/TASK`` or ``FAMILY/TASK/STATE``: ``llama``, ``bert/fill-mask``,
``t5/text2text-generation/encoder``; the default task may be left out: ``llama/prefill``. Each
comes with input sets of different sizes, so that what is dynamic can be seen from them.
"""

from __future__ import annotations

from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

from torch import nn

from torchferry.errors import UsageError
from torchferry.zoo.architecture import make_model, make_plain, make_untouched
from torchferry.zoo.families import FAMILIES, GROUPS
from torchferry.zoo.family import Family, Plain
from torchferry.zoo.library import import_transformers
from torchferry.zoo.samples import SAMPLES
from torchferry.zoo.states import TASKS, states_of
from torchferry.zoo.weights import seeded

__all__ = ["FamilyRow", "ZooModel", "build", "families", "names", "rows", "variants"]

_PLAIN_TASK = "forward"  # of modules that are no architecture of transformers


@dataclass(frozen=True)
class ZooModel:
    """A model in eval mode with inputs to run it on.

    Attributes:
        name: what follows ``zoo:``.
        model: the module; its weights are random, drawn so that activations are of order 1.
        input_sets: keyword arguments of ``forward``, three or more sets of different sizes.
        task: what it is built for, by Hugging Face's name; ``forward`` of a plain module.
        state: which arrangement of inputs it is: ``decode``, ``prefill``, ``plain``.
        states: all that there are for this task, the default first.
    """

    name: str
    model: nn.Module
    input_sets: list[dict[str, Any]]
    task: str = _PLAIN_TASK
    state: str = "plain"
    states: tuple[str, ...] = ("plain",)


@dataclass(frozen=True)
class FamilyRow:
    """What there is to say of a family.

    Attributes:
        family: its name.
        group: the kind: decoder, encoder, seq2seq, vision, multimodal, audio, everyday.
        model_class: the class it is built as for its first task.
        tasks: what it can be built for, the default first.
        states: arrangements of inputs for the first task, the default first.
        parameters: number of weights of the model for its first task.
        transformers: the oldest version that has it; empty of plain PyTorch.
    """

    family: str
    group: str
    model_class: str
    tasks: tuple[str, ...]
    states: tuple[str, ...]
    parameters: int
    transformers: str = ""


def names() -> list[str]:
    """Return the names of the models to begin with, sorted; `families` are all the others.

    >>> names()
    ['lstm', 'mlp', 'tiny-bert', 'tiny-llm', 'tiny-resnet', 'tiny-vit']
    """
    return sorted({"lstm", "mlp", *SAMPLES})


def families(group: str | None = None) -> list[str]:
    """Return the names of the architectures that `build` knows, sorted.

    Args:
        group: only those of a kind, a key of `torchferry.zoo.families.GROUPS`.

    Raises:
        UsageError: there is no such kind.

    >>> families("seq2seq")
    ['bart', 'marian', 'mbart', 't5']
    """
    if group is None:
        return sorted(FAMILIES)
    if group not in GROUPS:
        raise UsageError(f"no kind of model is called {group!r}; there are: {', '.join(GROUPS)}")
    return sorted(row.name for row in GROUPS[group])


def variants(family: str) -> list[str]:
    """Return every ``FAMILY/TASK/STATE`` that a family can be built as, the default first.

    Raises:
        UsageError: there is no such family.

    >>> variants("bart")[1:]
    ['bart/text2text-generation/prefill', 'bart/text2text-generation/encoder']
    """
    row = FAMILIES.get(family)
    if row is None:
        raise _unknown(family)
    if isinstance(row, Plain):
        return [family]
    return [f"{family}/{task}/{state}" for task in row.tasks for state in states_of(row, task)]


def build(name: str, task: str | None = None, state: str | None = None) -> ZooModel:
    """Build a model and its inputs; the same name gives the same numbers every time.

    Args:
        name: see the module; what it leaves open may be given by the other arguments.
        task: for example ``text-generation``; the family's first when ``None``.
        state: for example ``prefill``; the task's first when ``None``.

    Raises:
        UsageError: there is no such model, task or state, or it needs transformers and that is
            not installed or too old.
    """
    family, task, state = _parse(name, task, state)
    title = "/".join(part for part in (family, task, state) if part)
    if family in SAMPLES:
        _refuse(title, task or state, ())
        model, input_sets = SAMPLES[family]()
        return ZooModel(title, model, input_sets)
    row = FAMILIES.get(family)
    if row is None:
        raise _unknown(family)
    if isinstance(row, Plain):
        _refuse(title, task or state, ())
        generator = seeded(0)
        model = make_plain(row, generator)
        sets = [{n: draw(one, generator) for n, draw in row.inputs.items()} for one in row.sets]
        return ZooModel(title, model, sets)
    return _build_family(row, title, task, state)


def _build_family(row: Family, title: str, task: str | None, state: str | None) -> ZooModel:
    if task is not None and state is None and task not in row.tasks:
        task, state = None, task  # llama/prefill
    task = task or row.tasks[0]
    if task not in row.tasks:
        _refuse(title, task, row.tasks)
    states = states_of(row, task)
    state = state or states[0]
    if state not in states:
        _refuse(title, state, (*states, *row.tasks))
    chosen = TASKS[task].states[state]
    generator = seeded(0)
    whole = make_model(row, task, generator)
    input_sets = chosen.make(whole, row, generator)
    model: nn.Module = getattr(whole, chosen.part)() if chosen.part else whole
    return ZooModel(title, model, input_sets, task, state, states)


def rows() -> list[FamilyRow]:
    """Return what there is to say of every family, in the order of the tables.

    One that the installed transformers is too old for has no parameters, and no class.

    Raises:
        UsageError: transformers is missing.
    """
    installed = import_transformers("the families of the zoo").__version__
    found = []
    tasks: tuple[str, ...]
    states: tuple[str, ...]
    for group, table in GROUPS.items():
        for row in table:
            if isinstance(row, Plain):
                model = make_plain(row, seeded(0))
                tasks, states = (_PLAIN_TASK,), ("plain",)
            else:
                try:
                    model = make_untouched(row, row.tasks[0])
                except UsageError:
                    said = f"not with transformers {installed}"
                    found.append(FamilyRow(row.name, group, said, row.tasks, (), 0, row.since))
                    continue
                tasks, states = row.tasks, states_of(row, row.tasks[0])
            count = sum(parameter.numel() for parameter in model.parameters())
            since = "" if isinstance(row, Plain) else row.since
            cls = type(model).__name__
            found.append(FamilyRow(row.name, group, cls, tasks, states, count, since))
    return found


def _parse(name: str, task: str | None, state: str | None) -> tuple[str, str | None, str | None]:
    parts = name.split("/")
    if len(parts) > 3 or not all(parts[1:]):
        raise UsageError(f"zoo:{name} is no FAMILY, FAMILY/TASK or FAMILY/TASK/STATE")
    for given, part, what in zip((task, state), parts[1:], ("task", "state"), strict=False):
        if given is not None and given != part:
            raise UsageError(f"zoo:{name} names its {what}, and {given!r} was given too")
    written = dict(zip(("family", "task", "state"), parts, strict=False))
    return parts[0], written.get("task", task), written.get("state", state)


def _refuse(title: str, part: str | None, known: tuple[str, ...]) -> None:
    """Raise when a task or state is asked for that there is not."""
    if part is None:
        return
    close = get_close_matches(part, known)
    hint = f"; did you mean {' or '.join(close)}?" if close else "."
    has = f"It has: {', '.join(known)}" if known else "It has one form only"
    family = title.partition("/")[0]
    raise UsageError(f"zoo:{family} has no {part!r}{hint} {has}")


def _unknown(name: str) -> UsageError:
    plain = name.lower()
    close: dict[str, None] = {}
    for spelling in (plain.replace("_", "-"), plain.replace("-", "_")):
        close |= dict.fromkeys(get_close_matches(spelling, sorted({*names(), *FAMILIES})))
    hint = f"; did you mean {' or '.join(list(close)[:3])}?" if close else "."
    return UsageError(
        f"the zoo has no model {name!r}{hint} It has: {', '.join(names())}, and "
        f"{len(FAMILIES)} families, which torchferry.zoo.families() lists"
    )
