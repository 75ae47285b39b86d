"""From the name of a model to a folder that several runtimes load, proven in them."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from dataclasses import replace as changed
from functools import partial
from pathlib import Path
from typing import Any, Unpack

import onnx_ir as ir
import torch

from torchferry.deployer import summary
from torchferry.deployer.generate.inputs import context_of
from torchferry.deployer.kind import KINDS, Kind, check_cache, check_runtimes, kind_of, task_of
from torchferry.deployer.layout import (
    Graph,
    chosen_graphs,
)
from torchferry.deployer.manifest import was_deployed, write_manifest
from torchferry.deployer.options import TEXTLESS, Options, check_choices
from torchferry.deployer.prove.corpus import (
    Prompt,
    calibration_rows,
    evaluation_rows,
    evaluation_texts,
    pictures,
    prompts,
    sounds,
)
from torchferry.deployer.prove.likeness import Feeds, text_feeds
from torchferry.deployer.prove.proof import (
    Proof,
    first_context,
    prove_generator,
    prove_outputs,
)
from torchferry.deployer.prove.reference import generated, predict, record_logits
from torchferry.deployer.write.assemble import SCHEMES, assemble_graphs
from torchferry.deployer.write.build import FLOATS, RENAMED, Wanted, build_graphs
from torchferry.deployer.write.card import write_card
from torchferry.deployer.write.genai import (
    check_decoder_graph,
    write_genai,
    write_genai_speech,
    write_genai_vision,
)
from torchferry.deployer.write.huggingface import (
    copy_processor,
    read_tokenizer,
    write_configs,
    write_tokenizer,
)
from torchferry.deployer.write.towers import TwoTowers
from torchferry.errors import UsageError
from torchferry.exporter.folder import check_target, publish
from torchferry.exporter.steps import Steps
from torchferry.graph import io
from torchferry.progress import show_steps
from torchferry.quantizer import RECIPES
from torchferry.report import html
from torchferry.report.model import Report
from torchferry.sources.packed import find_scattered, unpack_parameters
from torchferry.sources.source import Source, load_source
from torchferry.values.fast_path import disable_fast_paths
from torchferry.zoo.inputs.text import parameters_of

__all__ = ["Options", "deploy"]

_STEPS = 16  # tokens that are generated in every runtime
_BUDGET = 600.0  # seconds for sizes that were not recorded: without them a graph is not proven
_DECODERS: tuple[Kind, ...] = ("decoder", "vision-language")  # with keys and values of one text
_LONGEST = 2048  # tokens, of models that do not say how many they take


@dataclass(frozen=True)
class _Plan:
    """What is deployed, and for what."""

    title: str
    source: Source
    kind: Kind
    tokenizer: Any
    runtimes: tuple[str, ...]
    graphs: tuple[Graph, ...]
    wanted: Wanted
    vocabulary: int
    longest: int
    pad: int


def deploy(model: str | Path, out: str | Path, **options: Unpack[Options]) -> Report:
    """Write a folder that runtimes load, in the precisions asked for, and prove it in them.

    The folder appears whole or not at all. If a check fails it is called ``OUT.failed``, and an
    earlier ``out`` stays as it was.

    Args:
        model: what ``torchferry export`` takes: a Hugging Face folder, ``zoo:NAME``.
        out: the folder to write.
        options: see `Options`.

    Returns: the report; ``.ok`` says whether every check passed.

    Raises:
        UsageError: what is given cannot be used.
        FerryError: see `torchferry.export`.
    """
    model, out = str(model), Path(out)
    names, precisions, size = check_choices(options)
    replace, progress = options.get("replace", False), options.get("progress")
    failed = out.with_name(f"{out.name}.failed")
    check_target(out, replace=replace, written=was_deployed(out))
    check_target(failed, replace=True, written=was_deployed(failed))
    steps = Steps(progress)
    with steps.step("load model") as say:
        plan = _planned(model, names, precisions, options.get("inputs"), options.get("calibrate"))
        say(plan.kind)
    _check_fitting(plan, options.get("calibrate") or options.get("target_loss") or size)
    wanted = changed(plan.wanted, loss=options.get("target_loss"), size=size)
    narrow = partial(_narrow, plan, options.get("inputs"))
    with publish(out, replace=replace, written=was_deployed(out)) as staging:
        folder = staging.folder
        build = assemble_graphs if plan.kind in SCHEMES else build_graphs
        built = build(
            plan.source, narrow, plan.graphs, folder, wanted,
            kind=plan.kind, steps=steps, target="onnxruntime", opset=options.get("opset"),
            budget=_BUDGET if options.get("budget") is None else options["budget"],
        )  # fmt: skip
        first = plan.graphs[0]
        graph = io.load(folder / (first.path if plan.kind in _DECODERS else first.paths[0])).graph
        _write_files(plan, folder, graph)
        with show_steps(progress) as begin:
            proof = _prove(plan, folder, [str(value.name) for value in graph.inputs], begin)
        if wanted.loss is not None:
            proof.limits["int4"] = wanted.loss
        report = summary.report(plan.title, plan.graphs, built, proof, out=out, steps=steps)
        if not report.ok:
            staging.target = staging.target.with_name(failed.name)
        _write_pages(plan, folder, report, summary.tables(plan.graphs, built, proof), out.name)
    return report


def _check_fitting(plan: _Plan, fitted: object) -> None:
    """Refuse to fit a model to texts that says nothing of them.

    Raises:
        UsageError: it hears, and one of the options asks for it.
    """
    if plan.kind == "speech" and fitted not in (None, *TEXTLESS):
        raise UsageError(
            f"{plan.title} hears, and int4 is fitted to texts: leave out --calibrate, "
            "--target-loss and --target-size, and every weight gets the nearest grid"
        )


def _check_groups(title: str, precisions: Sequence[str]) -> None:
    """Refuse to round weights anew that lie on a grid of 4 bits which kernels do not have.

    Raises:
        UsageError: int4 is asked for, of a folder with such weights.
    """
    block = RECIPES["int4"].block
    name = find_scattered(Path(title), block) if "int4" in precisions else ""
    if name:
        raise UsageError(
            f"{title} holds {name} in groups whose columns are no runs of {block} (desc_act of "
            "GPTQ, or small groups), so that no kernel of 4 bits keeps its grid: use int8, fp16 "
            "or fp32"
        )


def _narrow(plan: _Plan, inputs: str | None, dtype: str) -> Source:
    """The model in half precision, with the same inputs as in float32."""
    source = load_source(plan.title, inputs=inputs, dtype=dtype)
    unpack_parameters(source.model)
    return _fitted(source, plan.kind, plan.tokenizer)


def _planned(
    model: str,
    runtimes: tuple[str, ...],
    precisions: tuple[str, ...],
    inputs: str | None,
    calibrate: str | Path | None,
) -> _Plan:
    tokenizer = read_tokenizer(model)
    source = load_source(model, inputs=inputs, dtype="fp32")
    unpack_parameters(source.model)
    kind = kind_of(source.model, model)
    _check_groups(model, precisions)
    source = _fitted(source, kind, tokenizer)
    config: Any = getattr(source.model, "config", None)
    check_runtimes(kind, runtimes, precisions, tokenizer, title=model, config=config)
    if kind == "decoder":
        check_cache([fed for _, fed in source.input_sets], model)
    generates = KINDS[kind].generates and config is not None
    text = config.get_text_config() if generates and kind in _DECODERS else config
    vocabulary = int(text.vocab_size) if generates else 0
    longest = context_of(text) or _LONGEST
    rows: Sequence[Any] = ()
    if "int4" in precisions and str(calibrate) not in TEXTLESS and kind != "speech":
        path = None if calibrate is None else Path(calibrate)
        rows = calibration_rows(tokenizer, vocabulary, longest, path)
    pad = _pad_token(source.model, tokenizer, vocabulary)
    if kind in ("seq2seq", "speech"):
        _set_start(source.model, pad)
    return _Plan(
        model, source, kind, tokenizer, runtimes, chosen_graphs(precisions, KINDS[kind].parts),
        Wanted(rows, recipe="int4-hqq" if str(calibrate) == "hqq" else "int4"),
        vocabulary, longest, pad,
    )  # fmt: skip


def _fitted(source: Source, kind: Kind, tokenizer: Any) -> Source:
    """The model as it is exported, with the inputs that runtimes give it."""
    if kind == "audio":  # optimum gives these models no mask
        sets = [((), {"input_values": fed["input_values"]}) for _, fed in source.input_sets]
        return changed(source, input_sets=sets)
    if kind != "dual-encoder":
        return source
    # SigLIP's tokenizer makes no mask: its texts are filled up as they were in training.
    known = ["attention_mask"] if tokenizer is None else tokenizer.model_input_names
    left = {"attention_mask", "position_ids"} - {*known}
    sets = [((), {n: x for n, x in fed.items() if n not in left}) for _, fed in source.input_sets]
    return changed(source, model=TwoTowers(source.model).eval(), input_sets=sets)


def _set_start(model: Any, pad: int) -> None:
    """Let a decoder start with the token that fills up, as T5 does, if nothing else is said."""
    said = model.generation_config
    if said.decoder_start_token_id is None and said.bos_token_id is None:
        said.decoder_start_token_id = pad


def _pad_token(model: Any, tokenizer: Any, vocabulary: int) -> int:
    """The token that fills up: the model's, the tokenizer's, or the one that ends a text."""
    generation = getattr(model, "generation_config", None)
    for place in (generation, getattr(model, "config", None), tokenizer):
        for name in ("pad_token_id", "eos_token_id"):
            token = getattr(place, name, None)
            token = token[0] if isinstance(token, list) and token else token
            if isinstance(token, int) and 0 <= token < vocabulary:
                return token
    return 0


def _write_files(plan: _Plan, folder: Path, graph: ir.Graph) -> None:
    """Write what stands beside the graphs; one shows the inputs and outputs of all."""
    write_configs(_configured(plan), folder, plan.graphs)
    copy_processor(plan.title, folder)
    if plan.tokenizer is not None:
        write_tokenizer(plan.tokenizer, folder, [str(value.name) for value in graph.inputs])
    if plan.kind in _DECODERS:
        check_decoder_graph(graph, plan.title)
    if "genai" in plan.runtimes and plan.kind == "vision-language":
        write_genai_vision(folder, plan.source.model, plan.graphs, graph, plan.pad)
    elif "genai" in plan.runtimes and plan.kind == "speech":
        decoder = io.load(folder / plan.graphs[0].path).graph
        write_genai_speech(folder, plan.source.model, plan.graphs, decoder, plan.pad)
    elif "genai" in plan.runtimes:
        write_genai(folder, plan.source.model, plan.graphs, graph, plan.pad)


def _configured(plan: _Plan) -> Any:
    """The model of transformers that the configuration is of: within a sentence encoder's."""
    model = plan.source.model
    return model if hasattr(model, "config") else model.encoder


def _prove(plan: _Plan, folder: Path, inputs: Sequence[str], begin: Any) -> Proof:
    model = plan.source.model
    if not KINDS[plan.kind].generates:
        feeds = _feeds(plan, inputs)
        begin("run PyTorch")
        with torch.no_grad(), disable_fast_paths():
            wanted = [_named(model(**fed)) for fed in feeds]
        return prove_outputs(
            folder, plan.graphs, plan.runtimes, feeds=feeds, wanted=wanted, begin=begin
        )
    batches: Sequence[Prompt] = prompts(plan.tokenizer, plan.vocabulary, plan.pad)
    if plan.kind == "speech":
        batches = sounds(model)
    elif plan.kind == "vision-language":
        batches = pictures(model)
    rows = evaluation_rows(plan.tokenizer, plan.vocabulary, plan.longest)
    with tempfile.TemporaryDirectory(prefix="torchferry-") as place:
        begin("generate in PyTorch")
        tokens = generated(model, batches, _STEPS, plan.pad)
        run = partial(predict, model, before=first_context(batches))
        logits = record_logits(run, rows, Path(place) / "logits")
        return prove_generator(
            folder, plan.graphs, plan.runtimes, kind=plan.kind, batches=batches, wanted=tokens,
            logits=logits, pad=plan.pad, begin=begin,
        )  # fmt: skip


def _feeds(plan: _Plan, names: Sequence[str]) -> list[Feeds]:
    """Inputs for a model that generates nothing: sentences, or those that it was exported with."""
    sets: list[Feeds] = [
        {n: x for n, x in fed.items() if n in names} for _, fed in plan.source.input_sets
    ]
    if plan.tokenizer is None or plan.kind not in ("encoder", "dual-encoder"):
        return sets
    texts = text_feeds(plan.tokenizer, evaluation_texts(), names)
    if plan.kind == "encoder":
        return texts
    return [{**fed, **text} for fed, text in zip(sets, texts, strict=False)]


def _named(outputs: Any) -> dict[str, torch.Tensor]:
    """The tensors of a model's outputs, by the names of the graph's."""
    tensors = {name: x for name, x in outputs.items() if isinstance(x, torch.Tensor)}
    return {RENAMED.get(name, name): x for name, x in tensors.items()}


def _sample(fed: Mapping[str, Any]) -> str:
    """Python of inputs of these sizes; the name of the first stands before it."""
    made = {
        name: f"torch.rand{(*x.shape,)}"
        if x.is_floating_point()
        else f"torch.ones({(*x.shape,)}, dtype=torch.int64)"
        for name, x in fed.items()
    }
    first, *others = made.items()
    return ", ".join([first[1], *(f"{name}={value}" for name, value in others)])


def _image_words(plan: _Plan) -> dict[str, str]:
    """A prompt with an image, and what the card says of images in genai."""
    config: Any = plan.source.model.config
    names = ("vision_start_token_id", "image_token_id", "vision_end_token_id")
    tokens = [x for name in names if isinstance(x := getattr(config, name, None), int)]
    known = plan.tokenizer
    image = "".join(map(str, known.convert_ids_to_tokens(tokens))) if known else "<image>"
    given = [n for n in ("pixel_values", "image_grid_thw") if n in plan.source.input_sets[0][1]]
    return {"prompt": f"{image} What is this?", "images": str(given),
            "token": str(config.image_token_id)}  # fmt: skip


def _write_pages(plan: _Plan, folder: Path, report: Report, tables: Any, name: str) -> None:
    model: Any = plan.source.model
    task = task_of(type(_configured(plan)).__name__)
    first = next(name for name in ("input_ids", *FLOATS) if name in parameters_of(model))
    shapes = [tuple(x.shape) for _, fed in plan.source.input_sets
              if isinstance(x := fed.get(first), torch.Tensor)]  # fmt: skip
    start = getattr(getattr(model, "generation_config", None), "decoder_start_token_id", 0)
    words = {"name": name, "task": task.name, "optimum": task.optimum, "kind": plan.kind,
             "input": first, "shape": str((shapes or [()])[0]), "start": str(start)}  # fmt: skip
    if plan.kind == "dual-encoder":
        words["sample"] = _sample(plan.source.input_sets[0][1])
    elif plan.kind == "vision-language":
        words |= _image_words(plan)
    title = Path(plan.title).name
    write_card(folder, title, tables, graphs=plan.graphs, runtimes=plan.runtimes, words=words)
    html.dump(report, folder / "report.html")
    write_manifest(folder, plan.kind, [graph.path.as_posix() for graph in plan.graphs])
