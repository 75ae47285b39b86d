"""Run the deployed graphs in every runtime and compare them with PyTorch."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from torchferry.deployer.generate.seq2seq import GENERATORS
from torchferry.deployer.kind import Kind
from torchferry.deployer.layout import Graph
from torchferry.deployer.prove.corpus import Batch, Picture, Prompt, Sound
from torchferry.deployer.prove.likeness import Feeds, Likeness, Outputs, compare_outputs
from torchferry.deployer.prove.reference import (
    Agreement,
    Generated,
    Logits,
    generated,
    measure,
    predict,
)
from torchferry.deployer.prove.runtimes import RUNNERS, Request, generate_there, outputs_there
from torchferry.errors import RunError

__all__ = [
    "Proof", "Run", "compare_tokens", "describe_runs", "first_context", "prove_generator",
    "prove_outputs",
]  # fmt: skip

_TIES = {"fp32": 1e-5, "fp16": 1e-2, "bf16": 1e-2}
_ROUNDED = 2e-2
"""Relative to the largest logit: two tokens are a tie if they are no further apart. In graphs of
few bits activations are rounded to eight, and another kernel of attention, or another batch,
rounds some otherwise: SmolLM2's logits in int8 move by a hundredth."""


@dataclass(frozen=True)
class Run:
    """Greedy tokens of one graph in one runtime.

    Attributes:
        runtime: its name.
        graph: which graph.
        version: of the runtime; empty where it is missing.
        same: whether all tokens are the reference's, or differ after a tie; ``None`` if it did
            not run.
        note: the ties, the first difference, or what the runtime said.
    """

    runtime: str
    graph: Graph
    version: str
    same: bool | None
    note: str = ""


@dataclass(frozen=True)
class Proof:
    """What was seen of a folder.

    Attributes:
        runs: each graph in each runtime.
        agreements: of each graph, by name.
        limits: the largest distances, by name, where they are not the usual ones.
    """

    runs: list[Run] = field(default_factory=list)
    agreements: dict[str, Agreement | Likeness] = field(default_factory=dict)
    limits: dict[str, float] = field(default_factory=dict)

    @property
    def problems(self) -> list[str]:
        """One sentence a fault."""
        wrong = [
            f"{run.runtime} does not run {run.graph.path} as it should: {run.note}; to publish "
            f"the folder for the others leave {run.runtime} out of --for"
            for run in self.runs
            if run.version and not run.same
        ]
        usual = {name: seen.limits[name] for name, seen in self.agreements.items()}
        limits = usual | self.limits
        return wrong + [
            f"{name} is {seen.distance:.2g} from PyTorch, where {limits[name]:g} is the most that "
            "is accepted: choose another precision, or calibrate with texts of the model's kind"
            for name, seen in self.agreements.items()
            if not seen.distance <= limits[name]
        ]


def prove_generator(
    folder: Path,
    graphs: Sequence[Graph],
    runtimes: Sequence[str],
    *,
    kind: Kind,
    batches: Sequence[Prompt],
    wanted: Generated,
    logits: Logits,
    pad: int,
    begin: Callable[[str], object],
) -> Proof:
    """Generate with every graph in every runtime, and measure every graph on texts.

    Tokens of fp32 and fp16 are compared with PyTorch's, those of quantized graphs with what the
    same graph gives in onnxruntime: runtimes must not differ, while the weights do.

    Args:
        folder: of the deployment.
        graphs: to run.
        runtimes: their names.
        kind: of the model.
        batches: prompts; the first stands alone.
        wanted: PyTorch's tokens for them.
        logits: PyTorch's for the texts.
        pad: the token that fills up.
        begin: is given the name of each step.
    """
    proof = Proof()
    steps, before = len(wanted.rivals[0]), first_context(batches)
    versions = {name: RUNNERS[name].installed() for name in runtimes}
    for graph in graphs:
        begin(f"measure {graph.name}")
        model = GENERATORS[kind](folder, folder / graph.path)
        proof.agreements[graph.name] = measure(partial(predict, model, before=before), logits)
        own = None
        for name in ("onnxruntime", *(n for n in runtimes if n != "onnxruntime")):
            begin(f"{graph.name} in {name}")
            if not (version := versions.get(name, "here")):
                proof.runs.append(Run(name, graph, "", None, RUNNERS[name].missing))
                continue
            asked = Request(folder, kind, graph, batches, steps, pad, wanted.tokens[0][0][:-steps])
            expected = wanted if graph.exact else own
            if (name, kind) == ("genai", "speech"):
                expected = _without_suppression(model, asked)
            run, tokens = _run_there(name, asked, version, expected)
            own = tokens if name == "onnxruntime" else own
            if name in versions:
                proof.runs.append(run)
    return proof


def prove_outputs(
    folder: Path,
    graphs: Sequence[Graph],
    runtimes: Sequence[str],
    *,
    feeds: Sequence[Feeds],
    wanted: Sequence[Outputs],
    begin: Callable[[str], object],
) -> Proof:
    """Run every graph in every runtime and compare its outputs with PyTorch's.

    Args:
        folder: of the deployment.
        graphs: to run.
        runtimes: their names.
        feeds: sets of inputs.
        wanted: PyTorch's outputs for them.
        begin: is given the name of each step.
    """
    proof = Proof()
    versions = {name: RUNNERS[name].installed() for name in runtimes}
    for graph in graphs:
        for name in ("onnxruntime", *(n for n in runtimes if n != "onnxruntime")):
            begin(f"{graph.name} in {name}")
            if not versions.get(name, "here"):
                proof.runs.append(Run(name, graph, "", None, RUNNERS[name].missing))
                continue
            try:
                ours = outputs_there(name, folder, graph, feeds)
            except RunError as error:
                proof.runs.append(Run(name, graph, versions.get(name, ""), False, str(error)))
                continue
            seen = compare_outputs(ours, wanted, feeds)
            proof.agreements.setdefault(graph.name, seen)
            near = seen.distance <= seen.limits[graph.name]
            if name in versions:
                note = f"least cosine {seen.least:.5f} over {seen.vectors} vectors"
                proof.runs.append(Run(name, graph, versions[name], near, note))
    return proof


def first_context(batches: Sequence[Prompt]) -> Picture | Sound | None:
    """What comes before the texts that a model is measured on: nothing if it only reads."""
    return None if isinstance(batches[0], Batch) else batches[0]


def _run_there(
    name: str, asked: Request, version: str, expected: Generated | None
) -> tuple[Run, Generated | None]:
    """What a runtime gives, and whether it is as expected; the first sets what is expected."""
    graph = asked.graph
    try:
        tokens = generate_there(name, asked)
    except RunError as error:
        return Run(name, graph, version, False, str(error)), None
    if expected is None and name != "onnxruntime":
        note = "onnxruntime, which it is compared with, fails"
        return Run(name, graph, version, False, note), tokens
    same, note = compare_tokens(tokens, expected or tokens, _TIES.get(graph.name, _ROUNDED))
    return Run(name, graph, version, same, note), tokens


def _without_suppression(model: Any, asked: Request) -> Generated:
    """What a deployed model gives without the list of tokens that genai does not know of."""
    said = model.generation_config
    lists = said.suppress_tokens, said.begin_suppress_tokens
    said.suppress_tokens = said.begin_suppress_tokens = None
    tokens = generated(model, asked.batches, asked.steps, asked.pad)
    said.suppress_tokens, said.begin_suppress_tokens = lists
    return tokens


def compare_tokens(result: Generated, wanted: Generated, tie: float) -> tuple[bool, str]:
    """Whether the tokens are equal, or differ first where the reference has a tie.

    Args:
        result: of a runtime.
        wanted: of the reference, with rivals.
        tie: how far apart, at most, the logits of two tokens may be that are a tie.

    Returns:
        The verdict, and a note: empty if every token is equal.
    """
    notes = []
    batches = zip(result.tokens, wanted.tokens, wanted.rivals, strict=True)
    for place, (ours, theirs, rivals) in enumerate(batches):
        for row, (our, their) in enumerate(zip(ours, theirs, strict=True)):
            first = next(
                (i for i, (a, b) in enumerate(zip(our, their, strict=False)) if a != b), -1
            )
            if first < 0 and len(our) == len(their):
                continue
            step = first - (len(their) - len(rivals))
            where = f"batch {place}, row {row}, new token {step}"
            if first < 0 or step < 0:
                return False, f"{where}: {len(our)} tokens, {len(their)} expected"
            apart = rivals[step][row].get(our[first], float("inf"))
            if apart > tie:
                return False, f"{where}: {our[first]} for {their[first]}"
            notes.append(f"{where}: a tie, {apart:.1g} apart")
    return True, "; ".join(notes)


def describe_runs(proof: Proof) -> Mapping[str, Any]:
    """The same facts for programs."""
    return {
        "runs": [
            {"runtime": r.runtime, "graph": r.graph.name, "version": r.version, "same": r.same,
             "note": r.note}
            for r in proof.runs
        ],
        "agreements": {name: vars(seen) for name, seen in proof.agreements.items()},
    }  # fmt: skip
