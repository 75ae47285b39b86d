"""What kind of model is deployed, and which runtimes take that kind."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from torchferry.errors import UsageError
from torchferry.values.caches import cache_tensors
from torchferry.values.kinds import attempt
from torchferry.zoo.inputs.text import parameters_of

__all__ = ["KINDS", "Kind", "Task", "check_cache", "check_runtimes", "kind_of", "task_of"]

Kind = Literal["decoder", "encoder", "image"]


@dataclass(frozen=True)
class Traits:
    """What is known of a kind of model.

    Attributes:
        runtimes: that take it.
        kernel: of int8.
    """

    runtimes: tuple[str, ...]
    kernel: Literal["blocks", "dynamic"]


KINDS: dict[Kind, Traits] = {
    "decoder": Traits(("onnxruntime", "genai", "optimum", "transformers.js"), "blocks"),
    "encoder": Traits(("onnxruntime", "optimum", "transformers.js"), "dynamic"),
    "image": Traits(("onnxruntime", "optimum", "transformers.js"), "dynamic"),
}


@dataclass(frozen=True)
class Task:
    """What a class of transformers is for.

    Attributes:
        name: Hugging Face's.
        optimum: the class of optimum that runs it.
    """

    name: str
    optimum: str


_TASKS = {
    "ForCausalLM": Task("text-generation", "ORTModelForCausalLM"),
    "LMHeadModel": Task("text-generation", "ORTModelForCausalLM"),
    "ForSequenceClassification": Task("text-classification", "ORTModelForSequenceClassification"),
    "ForTokenClassification": Task("token-classification", "ORTModelForTokenClassification"),
    "ForQuestionAnswering": Task("question-answering", "ORTModelForQuestionAnswering"),
    "ForMaskedLM": Task("fill-mask", "ORTModelForMaskedLM"),
    "ForImageClassification": Task("image-classification", "ORTModelForImageClassification"),
    "ForSemanticSegmentation": Task("image-segmentation", "ORTModelForSemanticSegmentation"),
}


def task_of(architecture: str) -> Task:
    """What a class is for, by the end of its name; features if it has no head.

    >>> task_of("BertForMaskedLM").name
    'fill-mask'
    """
    features = Task("feature-extraction", "ORTModelForFeatureExtraction")
    return next((t for end, t in _TASKS.items() if architecture.endswith(end)), features)


def kind_of(model: Any, title: str) -> Kind:
    """The kind of a model.

    Raises:
        UsageError: it is none of those that can be deployed.
    """
    parameters = parameters_of(model)
    config = getattr(model, "config", None) or getattr(
        getattr(model, "encoder", None), "config", 0
    )
    text, image = "input_ids" in parameters, "pixel_values" in parameters
    if not config or text == image or getattr(config, "is_encoder_decoder", False):
        raise UsageError(
            f"{title} is {type(model).__name__}: torchferry deploys decoders, encoders and image "
            "models of transformers. Use torchferry export for this one"
        )
    if image:
        return "image"
    generates = getattr(model, "can_generate", None)
    return "decoder" if generates is not None and generates() else "encoder"


def check_cache(inputs: Sequence[Mapping[str, Any]], title: str) -> None:
    """Refuse, before any work is done, a decoder whose cache is not keys and values of each layer.

    Args:
        inputs: named arguments of calls of the decoder.
        title: of the model.

    Raises:
        UsageError: no call has such a cache.
    """
    found = [attempt(cache_tensors, value)[0] for fed in inputs for value in fed.values()]
    caches = [tensors for tensors in found if tensors is not None]
    plain = all(
        key is not None for tensors in caches for key in (*tensors.key_cache, *tensors.value_cache)
    )
    if not plain or not any(tensors.key_cache for tensors in caches):
        raise UsageError(
            f"{title} keeps something else than keys and values of each layer from token to "
            "token, which these runtimes do not run: use torchferry export"
        )


def check_runtimes(
    kind: Kind, runtimes: Sequence[str], precisions: Sequence[str], tokenizer: Any, title: str
) -> None:
    """Refuse, before any work is done, what a runtime or a recipe cannot take.

    Raises:
        UsageError: a runtime does not run this kind, or needs a tokenizer that the model lacks.
    """
    unable = [name for name in runtimes if name not in KINDS[kind].runtimes]
    if unable:
        raise UsageError(f"{unable[0]} runs no {kind}, which {title} is: leave it out of --for")
    wanting = [name for name in runtimes if name in ("genai", "transformers.js")]
    if tokenizer is None and wanting and kind != "image":
        raise UsageError(
            f"{title} has no tokenizer, and {wanting[0]} does not run without: give a model "
            "folder that holds one, or deploy --for onnxruntime"
        )
    if "int4" in precisions and kind != "decoder":
        raise UsageError(
            f"int4 is for decoders, and {title} is an {kind} model: int8 takes half the size of "
            "fp16 and computes nearly the same"
        )
