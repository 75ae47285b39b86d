"""Run a model on its input sets and tell what was seen: calls, dimensions, Python to paste."""

from __future__ import annotations

import warnings
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from typing import Any

import torch

from torchferry.capturer.state.places import state_kept
from torchferry.converter.write.dimension import name_dimensions
from torchferry.exporter.steps import Steps, counted
from torchferry.exporter.tell.paste import Pasted, export_source
from torchferry.exporter.tell.tables import argument_table
from torchferry.observer import Observation, observe
from torchferry.observer.given import Stated
from torchferry.observer.model_inputs import ModelInputs
from torchferry.progress import Progress
from torchferry.report.model import Block, Cell, Facts, Report, Section, Table
from torchferry.report.model import Source as Text
from torchferry.sources.factory import call
from torchferry.sources.source import Source, load_source
from torchferry.values.clone import clone
from torchferry.values.describe import string_type
from torchferry.values.fast_path import disable_fast_paths

__all__ = ["describe_size", "load_model", "run_sets", "run_source", "watch"]

Row = tuple[Cell | str | int | float, ...]


def watch(
    model: str,
    *,
    inputs: str | None = None,
    sizes: Stated = None,
    dtype: str | None = None,
    progress: Progress = None,
) -> Report:
    """Observe a model.

    Args:
        model: what `load_source` accepts.
        inputs: ``FILE.py:NAME`` that gives the input sets: see `load_source`; one is enough, but
            cannot tell which dimensions vary.
        sizes: the legal sizes, as `torchferry.dims.Legal.of` takes them.
        dtype: ``fp32``, ``fp16`` or ``bf16``; as the model is when ``None``.
        progress: what to do with the name of each step as it begins.

    Returns:
        The report; always ok.

    Raises:
        UsageError: the model or the inputs cannot be used, or an argument changes its rank, its
            dtype or its value.
    """
    source, seen = run_source(model, inputs, dtype, Steps(progress), sizes=sizes, least=1)
    if source.program is None:
        return _report(
            source, seen, ModelInputs(source.model, [(c.args, c.kwargs) for c in seen.calls])
        )
    if len(seen.calls) == 1:
        seen = replace(seen, named=name_dimensions(source.program))
    return _report(source, seen, None)


def run_source(
    model: str,
    inputs: str | None,
    dtype: str | None,
    steps: Steps,
    *,
    sizes: Stated = None,
    least: int = 2,
    lift: bool = False,
) -> tuple[Source, Observation]:
    """Load a model and run it on every input set.

    Args:
        model: what `load_source` accepts.
        inputs: ``FILE.py:function``, or ``None``.
        dtype: see `load_source`.
        steps: gets the steps ``load model`` and ``observe``.
        sizes: the legal sizes.
        least: how many input sets are needed.
        lift: whether the state of the model is lifted afterwards, and must be as it was.

    Raises:
        UsageError: the model or the inputs cannot be used, or a run raises: says on which set.
    """
    source = load_model(model, inputs, dtype, steps, sizes=sizes, least=least)
    kept = state_kept(source.model) if lift else nullcontext()
    with steps.step("observe") as made, kept, observe(source.model) as seen:
        run_sets(source)
        made(counted(len(seen.calls), "call"))
    return source, source.observed(seen)


def load_model(
    model: str,
    inputs: str | None,
    dtype: str | None,
    steps: Steps,
    *,
    sizes: Stated = None,
    least: int,
) -> Source:
    """Load a model as the step ``load model``; see `run_source`.

    Raises:
        UsageError: the model or the inputs cannot be used.
    """
    with steps.step("load model") as made:
        source = load_source(model, inputs=inputs, sizes=sizes, dtype=dtype, least=least)
        made(describe_size(source))
    return source


def describe_size(source: Source) -> str:
    """How large the model is, and the note on it: ``11,689,512 parameters, random weights``."""
    count = counted(sum(p.numel() for p in source.model.parameters()), "parameter")
    return f"{count}, {source.note}" if source.note else count


def run_sets(source: Source) -> None:
    """Run a model on a copy of each of its input sets, without gradients.

    Raises:
        UsageError: a run raises: says on which set.
    """
    with torch.no_grad(), disable_fast_paths(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for number in range(len(source.input_sets)):
            _run(source, number)


def _run(source: Source, number: int) -> None:
    args, kwargs = source.input_sets[number]
    copied_args, copied_kwargs = clone((args, kwargs))
    place = f"input set {number + 1} of {len(source.input_sets)}"
    given = string_type((args, kwargs), with_shape=True)
    forward = partial(source.model.__call__, *copied_args, **copied_kwargs)
    call(f"{source.title}, run on {place}, {given},", forward)


def _report(source: Source, seen: Observation, given: ModelInputs | None) -> Report:
    found = seen if given is None or seen.maker is not None else given.observation
    names = found.dynamic_names
    unknown = () if given is None else given.unknown
    dynamic = f"dynamic: {', '.join(names)}" if names else "no dimension varies"
    verdict = f"{counted(len(seen.calls), 'call')} of {seen.title}; {dynamic}"
    steps = [f"torchferry export {source.title} -o OUT  exports and checks it"]
    if unknown:
        once = "all arguments" if len(seen.calls) == 1 else ", ".join(unknown)
        verdict += f"; what varies of {once} cannot be known from one call"
        steps.insert(0, "give two or more input sets of different sizes: --inputs FILE.py:NAME")
    if given is not None and given.unvaried:
        verdict += "; all calls have the same sizes, which says nothing of what may vary"
        steps.insert(0, "give input sets of different sizes: --inputs FILE.py:function")
    sections = [
        Section("Calls", (_call_table(seen),)),
        Section("Arguments", (argument_table(found.arguments),)),
    ]
    pasted = None if given is None else export_source(given)
    if given is not None and pasted is not None:
        sections += [*_given_sections(given), _python(pasted, named=not given.integers)]
    return Report(
        f"observe {source.title}",
        ok=True,
        verdict=verdict,
        sections=tuple(sections),
        next_steps=tuple(steps),
        data=_data(seen, found, given, pasted),
    )


def _call_table(seen: Observation) -> Table:
    rows = tuple(
        (number, str(made), string_type(made.outputs, with_shape=True), f"{made.seconds:.3f}")
        for number, made in enumerate(seen.calls, 1)
    )
    return Table(("call", "inputs", "outputs", "seconds"), rows)


def _given_sections(given: ModelInputs) -> list[Section]:
    """Optional arguments and constants."""
    facts: list[Block] = []
    if given.optional:
        facts.append(Facts(tuple(
            (name, "nothing empty can stand for it: it needs a graph of its own"
             if value is None else f"{string_type(value, with_shape=True)} stands for it")
            for name, value in given.optional.items()
        ), title="Absent in some calls"))  # fmt: skip
    if given.constants:
        pairs = tuple((name, repr(value)) for name, value in given.constants.items())
        facts.append(Facts(pairs, title="Constants: parts of the graph"))
    return [Section("Optional and constant", tuple(facts))] if facts else []


def _python(pasted: Pasted, *, named: bool) -> Section:
    title = "Inputs like those seen; model is the module, in eval mode"
    if pasted.missing:
        title += f"; define {', '.join(pasted.missing)} first, which no literal can write"
    return Section(
        "Python to paste",
        (
            Text(title, pasted.inputs),
            Text("Then for torch.export", pasted.export),
            Text(f"Or for torch.onnx{', with names' * named}", pasted.onnx),
        ),
    )


def _data(
    seen: Observation, found: Observation, given: ModelInputs | None, pasted: Pasted | None
) -> dict[str, Any]:
    """The facts as JSON types."""
    calls = [
        {"inputs": str(made), "outputs": string_type(made.outputs, with_shape=True),
         "seconds": made.seconds}
        for made in seen.calls
    ]  # fmt: skip
    arguments = [
        {"name": argument.name, "dtype": argument.dtype and str(argument.dtype),
         "value": None if argument.dtype else repr(argument.value),
         "optional": argument.optional,
         "axes": [{"axis": a.index, "size": str(a.size), "seen": list(a.seen), "why": a.reason}
                  for a in argument.axes]}
        for argument in found.arguments
    ]  # fmt: skip
    data: dict[str, Any] = {"calls": calls, "arguments": arguments,
                            "dynamic": list(found.dynamic_names)}  # fmt: skip
    if given is not None and pasted is not None:
        data["unknown"] = list(given.unknown)
        data["integers"] = {name: list(values) for name, values in given.integers.items()}
        data["optional"] = {name: None if value is None else string_type(value, with_shape=True)
                            for name, value in given.optional.items()}  # fmt: skip
        data["python"] = vars(pasted)
    return data
