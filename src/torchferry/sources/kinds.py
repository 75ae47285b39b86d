"""The table of what MODEL may be."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from difflib import get_close_matches
from functools import partial
from pathlib import Path

from torchferry.errors import UsageError
from torchferry.sources.adapter import is_adapter, load_adapter
from torchferry.sources.archive import load_program
from torchferry.sources.checkpoint import (
    build_checkpoint,
    has_weights,
    load_checkpoint,
    map_checkpoint,
)
from torchferry.sources.diffusion import is_diffusion, load_component
from torchferry.sources.factory import make_model
from torchferry.sources.gguf import is_gguf, load_gguf
from torchferry.sources.loaded import RANDOM, Loaded
from torchferry.sources.sentences import is_sentence_folder, load_sentences
from torchferry.sources.timm import load_timm
from torchferry.sources.torchscript import is_torchscript, load_torchscript
from torchferry.sources.torchvision import load_torchvision
from torchferry.zoo import catalogue

__all__ = ["KINDS", "Kind", "read_model"]

_FACTORY = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*")


@dataclass(frozen=True)
class Kind:
    """One kind of source.

    Attributes:
        form: how MODEL is written, for messages.
        about: what is exported then, in a line.
        accepts: whether a text is of this kind.
        load: gives the model.
        map_weights: gives the model with its weights left in their files, if the kind can.
    """

    form: str
    about: str
    accepts: Callable[[str], bool]
    load: Callable[[str], Loaded]
    map_weights: Callable[[str], Loaded] | None = None


def read_model(text: str, *, mapped: bool = False) -> Loaded:
    """Give the model that a text stands for.

    Args:
        text: see `KINDS`.
        mapped: leave the weights in the files that hold them.

    Raises:
        UsageError: the text stands for nothing, or what it stands for cannot be loaded.
    """
    kind = next((kind for kind in KINDS if kind.accepts(text)), None)
    load = None if kind is None else kind.map_weights if mapped else kind.load
    if load is not None:
        return load(text)
    if mapped:
        raise UsageError(
            f"--weights reference needs a Hugging Face model folder, whose files then hold the "
            f"weights, and {text!r} is none: use --weights copy"
        )
    raise _stands_for_nothing(text)


def _stands_for_nothing(text: str) -> UsageError:
    forms = [kind.form for kind in KINDS]
    known = f"{', '.join(forms[:-1])}, or {forms[-1]}"
    if text and Path(text).is_file():
        return UsageError(f"{text} is no model that torchferry reads; give {known}")
    close = get_close_matches(text, catalogue.names(), n=1)
    hint = f"did you mean zoo:{close[0]}? Else give" if close else "give"
    return UsageError(
        f"there is no file or folder {text!r} (torchferry downloads nothing); {hint} {known}"
    )


def _load_zoo(text: str) -> Loaded:
    entry = catalogue.build(text.removeprefix("zoo:"))
    return Loaded(entry.model, entry.input_sets)


def _is_factory(text: str) -> bool:
    return bool(_FACTORY.fullmatch(text)) or text.rpartition(":")[0].endswith(".py")


def _load_factory(text: str) -> Loaded:
    model, sets = make_model(text)
    training = model.training
    try:
        model.eval()
    except NotImplementedError:  # of what torch.export made: its mode is in the graph
        training = False
    return Loaded(model, sets, training=training)


def _load_program(text: str) -> Loaded:
    program = load_program(Path(text))
    example = program.example_inputs
    return Loaded(program.module(), None if example is None else [example], program)


def _map_folder(text: str) -> Loaded:
    checkpoint = map_checkpoint(Path(text))
    return Loaded(checkpoint.model, files=checkpoint.files)


def _is_folder(text: str) -> bool:
    return bool(text) and Path(text).is_dir()


KINDS = (
    Kind(
        "zoo:NAME",
        "a model of the zoo with random weights: torchferry inspect zoo",
        lambda text: text.startswith("zoo:"),
        _load_zoo,
    ),
    Kind(
        "torchvision:NAME",
        "an architecture of torchvision with random weights: torchvision:resnet18",
        lambda text: text.startswith("torchvision:"),
        load_torchvision,
    ),
    Kind(
        "timm:NAME",
        "an architecture of timm with random weights: timm:vit_tiny_patch16_224",
        lambda text: text.startswith("timm:"),
        load_timm,
    ),
    Kind(
        "a diffusers folder",
        "each component gets a folder of its own; FOLDER:unet is one of them",
        is_diffusion,
        load_component,
    ),
    Kind(
        "a PEFT adapter folder",
        "the base model that it names, a local folder, with the adapter merged; FOLDER:inputs "
        "takes the adapter's weights as inputs",
        is_adapter,
        load_adapter,
    ),
    Kind(
        "a sentence-transformers folder",
        "the encoder with pooling and normalization; outputs sentence_embedding too",
        is_sentence_folder,
        load_sentences,
        partial(load_sentences, mapped=True),
    ),
    Kind(
        "a folder with config.json alone",
        "the architecture that it names, with random weights",
        lambda text: _is_folder(text) and not has_weights(Path(text)),
        lambda text: Loaded(build_checkpoint(Path(text)), note=RANDOM),
    ),
    Kind(
        "a Hugging Face model folder",
        "config.json and *.safetensors, as save_pretrained, GPTQModel and AutoAWQ write them",
        _is_folder,
        lambda text: Loaded(load_checkpoint(Path(text))),
        _map_folder,
    ),
    Kind(
        "a .gguf file",
        "a decoder of llama.cpp, its weights as float32",
        is_gguf,
        load_gguf,
    ),
    Kind(
        "a .pt2 file",
        "a program that torch.export.save wrote, with its example inputs",
        lambda text: Path(text).suffix == ".pt2",
        _load_program,
    ),
    Kind(
        "a TorchScript archive",
        "what torch.jit.save wrote; FILE:encoder is a module of it; needs --inputs",
        is_torchscript,
        load_torchscript,
    ),
    Kind(
        "package.module:factory",
        "a function that returns a module, or (module, input sets); FILE.py:factory too",
        _is_factory,
        _load_factory,
    ),
)
"""The kinds in the order in which they are asked."""
