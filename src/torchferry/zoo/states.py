"""What a model is built for: tasks, and the states of a run that each can be exported in.

A state is one arrangement of inputs. Their names: ``decode`` is a step with a filled cache,
``decode-full-window`` one after more tokens than a sliding window holds, ``prefill`` the prompt
without a cache, ``prefill-empty-cache`` the same with the empty cache object that ``generate()``
sends, ``no-cache`` with ``use_cache=False``, ``encoder`` the encoder alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import nn

from torchferry.zoo.family import Family
from torchferry.zoo.inputs import audio, image, multimodal, seq2seq
from torchferry.zoo.inputs.text import (
    Inputs,
    cache_name,
    decoder_inputs,
    encoder_inputs,
    parameters_of,
    text_config,
)

__all__ = ["TASKS", "State", "Task", "states_of"]

Make = Callable[[nn.Module, Family, torch.Generator], list[Inputs]]


@dataclass(frozen=True)
class State:
    """One arrangement of inputs.

    Attributes:
        make: makes three or more sets of different sizes.
        part: the method that gives the part of the model that is run, or nothing: all of it.
        only: tells which families have it; all when ``None``.
    """

    make: Make
    part: str = ""
    only: Callable[[Family], bool] | None = None


@dataclass(frozen=True)
class Task:
    """What a model is used for, by Hugging Face's name.

    Attributes:
        autos: the classes of transformers that know the model class for a configuration; the
            first that does decides.
        states: by name, the default first.
    """

    autos: tuple[str, ...]
    states: Mapping[str, State]


def states_of(family: Family, task: str) -> tuple[str, ...]:
    """Names of the states that a family has for a task, the default first."""
    return tuple(
        name for name, s in TASKS[task].states.items() if s.only is None or s.only(family)
    )


def _has_window(family: Family) -> bool:
    return "sliding_window" in family.sizes


def _has_decoder(family: Family) -> bool:
    return "decoder_layers" in family.sizes or "num_decoder_layers" in family.sizes


# Text -------------------------------------------------------------------------------------------

_DECODE_SIZES = ((3, 5, 14, ()), (2, 7, 9, (0, 4)), (1, 1, 6, ()))
"""Batch, new tokens, tokens in the cache, padding on the left."""

_TEXT_SIZES = ((3, 11, ()), (2, 14, (0, 5)), (1, 7, ()))


def _decode(model: nn.Module, family: Family, generator: torch.Generator) -> list[Inputs]:
    del family
    return _decode_after(model, 0, generator)


def _decode_full(model: nn.Module, family: Family, generator: torch.Generator) -> list[Inputs]:
    return _decode_after(model, family.sizes["sliding_window"], generator)


def _decode_after(model: nn.Module, more: int, generator: torch.Generator) -> list[Inputs]:
    name = cache_name(model)
    sets = []
    for batch, sequence, past, padding in _DECODE_SIZES:
        inputs = decoder_inputs(
            model, batch=batch, sequence=sequence, past=past + more,
            generator=generator, padding=padding,
        )  # fmt: skip
        inputs[name] = inputs.pop("past_key_values")
        sets.append(inputs)
    return sets


def _prefill(model: nn.Module, family: Family, generator: torch.Generator) -> list[Inputs]:
    del family
    sets = []
    for batch, sequence, padding in _TEXT_SIZES:
        inputs = encoder_inputs(model, batch=batch, sequence=sequence, generator=generator)
        mask = inputs["attention_mask"]
        for row, count in enumerate(padding):
            mask[row, :count] = 0
        if "position_ids" in parameters_of(model):
            inputs["position_ids"] = (mask.cumsum(-1) - 1).clamp(min=0)
        inputs.pop("token_type_ids", None)
        sets.append(inputs)
    return sets


def _prefill_empty(model: nn.Module, family: Family, generator: torch.Generator) -> list[Inputs]:
    from transformers import DynamicCache

    name = cache_name(model)
    return [
        {**inputs, name: DynamicCache(config=text_config(model))}
        for inputs in _prefill(model, family, generator)
    ]


def _no_cache(model: nn.Module, family: Family, generator: torch.Generator) -> list[Inputs]:
    return [{**inputs, "use_cache": False} for inputs in _prefill(model, family, generator)]


def _text(model: nn.Module, family: Family, generator: torch.Generator) -> list[Inputs]:
    del family
    return [
        encoder_inputs(model, batch=batch, sequence=sequence, generator=generator, padding=padding)
        for batch, sequence, padding in _TEXT_SIZES
    ]


# Other inputs -----------------------------------------------------------------------------------


def _images(model: nn.Module, family: Family, generator: torch.Generator) -> list[Inputs]:
    return image.image_sets(model, generator, family.images)


def _masked_images(model: nn.Module, family: Family, generator: torch.Generator) -> list[Inputs]:
    return image.mask_image_sets(model, generator, family.images)


def _points(model: nn.Module, family: Family, generator: torch.Generator) -> list[Inputs]:
    return image.point_sets(model, generator, family.images)


def _features(model: nn.Module, family: Family, generator: torch.Generator) -> list[Inputs]:
    """Whatever the model looks at: its ``forward`` says it."""
    parameters = parameters_of(model)
    if "pixel_values" in parameters:
        return _masked_images(model, family, generator)
    if "input_values" in parameters:
        return audio.waveform_sets(model, generator)
    if "input_features" in parameters:
        return seq2seq.feature_sets(model, generator)
    return _text(model, family, generator)


def _of_model(make: Callable[[nn.Module, torch.Generator], list[Inputs]]) -> Make:
    def of_family(model: nn.Module, family: Family, generator: torch.Generator) -> list[Inputs]:
        del family
        return make(model, generator)

    return of_family


def _encoder_decoder(encoded: seq2seq.Encoded) -> dict[str, State]:
    return {
        "decode": State(_of_model(seq2seq.decode_sets(encoded)), only=_has_decoder),
        "prefill": State(_of_model(seq2seq.prefill_sets(encoded)), only=_has_decoder),
        "encoder": State(_of_model(encoded), part="get_encoder", only=_has_decoder),
    }


_PLAIN = {"plain": State(_features)}

TASKS: dict[str, Task] = {
    "text-generation": Task(
        ("AutoModelForCausalLM",),
        {
            "decode": State(_decode),
            "prefill": State(_prefill),
            "prefill-empty-cache": State(_prefill_empty),
            "no-cache": State(_no_cache),
            "decode-full-window": State(_decode_full, only=_has_window),
        },
    ),
    "feature-extraction": Task(("AutoModel",), _PLAIN),
    "fill-mask": Task(("AutoModelForMaskedLM",), _PLAIN),
    "text-classification": Task(("AutoModelForSequenceClassification",), _PLAIN),
    "token-classification": Task(("AutoModelForTokenClassification",), _PLAIN),
    "question-answering": Task(("AutoModelForQuestionAnswering",), _PLAIN),
    "text2text-generation": Task(
        ("AutoModelForSeq2SeqLM",), _encoder_decoder(seq2seq.encoder_sets)
    ),
    "image-classification": Task(("AutoModelForImageClassification",), {"plain": State(_images)}),
    "object-detection": Task(("AutoModelForObjectDetection",), {"plain": State(_masked_images)}),
    "image-segmentation": Task(("AutoModelForSemanticSegmentation",), {"plain": State(_images)}),
    "mask-generation": Task(("AutoModelForMaskGeneration",), {"plain": State(_points)}),
    "zero-shot-image-classification": Task(
        ("AutoModelForZeroShotImageClassification",),
        {"plain": State(_of_model(multimodal.caption_sets))},
    ),
    "image-text-to-text": Task(
        ("AutoModelForImageTextToText",),
        {
            "decode": State(_of_model(multimodal.decode_sets)),
            "prefill": State(_of_model(multimodal.prefill_sets)),
        },
    ),
    "automatic-speech-recognition": Task(
        ("AutoModelForSpeechSeq2Seq", "AutoModelForCTC"),
        {
            **_encoder_decoder(seq2seq.feature_sets),
            "plain": State(_features, only=lambda family: not _has_decoder(family)),
        },
    ),
    "audio-classification": Task(("AutoModelForAudioClassification",), _PLAIN),
}
"""Every task that a transformers model is built for."""
