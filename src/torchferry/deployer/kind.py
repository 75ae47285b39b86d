"""What kind of model is deployed, and which runtimes take that kind."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from torchferry.deployer.layout import DECODER, EMBEDDING, ENCODER, MODEL, VISION
from torchferry.errors import UsageError
from torchferry.values.caches import cache_tensors
from torchferry.values.kinds import attempt
from torchferry.zoo.inputs.text import parameters_of

__all__ = [
    "KINDS", "VISION_LANGUAGE", "Kind", "Task", "check_cache", "check_runtimes", "kind_of",
    "task_of",
]  # fmt: skip

Kind = Literal[
    "decoder", "encoder", "image", "audio", "dual-encoder", "seq2seq", "speech", "vision-language"
]
"""``image`` and ``audio`` are encoders of pixels and of waveforms, ``dual-encoder`` has one tower
for text and one for images (CLIP), ``seq2seq`` and ``speech`` are encoder-decoders, of text and of
sound, ``vision-language`` is a decoder that reads images among the tokens."""
VISION_LANGUAGE = {"llava": "phi3v", "qwen2_vl": "qwen2_5_vl", "qwen2_5_vl": "qwen2_5_vl"}
"""For each ``model_type`` of transformers that is deployed in parts, what genai calls a model of
these inputs and positions: ``phi3v`` is any with one position a token, the others have three."""


_POSITIONS = 1500  # of Whisper's encoder, each of two frames; genai knows no other number


@dataclass(frozen=True)
class Traits:
    """What is known of a kind of model.

    Attributes:
        runtimes: that take it.
        kernel: of int8.
        parts: what its graphs are called.
    """

    runtimes: tuple[str, ...]
    kernel: Literal["blocks", "dynamic"]
    parts: tuple[str, ...] = (MODEL,)

    @property
    def generates(self) -> bool:
        """Whether tokens are what it is used for."""
        return self.kernel == "blocks"


KINDS: dict[Kind, Traits] = {
    "decoder": Traits(("onnxruntime", "genai", "optimum", "transformers.js"), "blocks"),
    "encoder": Traits(("onnxruntime", "optimum", "transformers.js"), "dynamic"),
    "image": Traits(("onnxruntime", "optimum", "transformers.js"), "dynamic"),
    "audio": Traits(("onnxruntime", "optimum", "transformers.js"), "dynamic"),
    "dual-encoder": Traits(("onnxruntime", "optimum", "transformers.js"), "dynamic"),
    "seq2seq": Traits(("onnxruntime", "optimum", "transformers.js"), "blocks", (ENCODER, DECODER)),
    "speech": Traits(
        ("onnxruntime", "genai", "optimum", "transformers.js"), "blocks", (ENCODER, DECODER)
    ),
    "vision-language": Traits(("onnxruntime", "genai"), "blocks", (VISION, EMBEDDING, MODEL)),
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


_NOUNS: dict[Kind, str] = {"seq2seq": "encoder-decoder", "speech": "encoder-decoder"}
_TASKS = {
    **{
        f"{name}ForSequenceClassification": Task(
            "audio-classification", "ORTModelForAudioClassification"
        )
        for name in ("Wav2Vec2", "Hubert", "WavLM", "UniSpeech")
    },
    "ForCTC": Task("automatic-speech-recognition", "ORTModelForCTC"),
    "WhisperForConditionalGeneration": Task(
        "automatic-speech-recognition", "ORTModelForSpeechSeq2Seq"
    ),
    **{
        f"{name}ForConditionalGeneration": Task("image-text-to-text", "")
        for name in ("Llava", "Qwen2VL", "Qwen2_5_VL")
    },
    "ForConditionalGeneration": Task("text2text-generation", "ORTModelForSeq2SeqLM"),
    "MTModel": Task("translation", "ORTModelForSeq2SeqLM"),
    "ForCausalLM": Task("text-generation", "ORTModelForCausalLM"),
    "LMHeadModel": Task("text-generation", "ORTModelForCausalLM"),
    "ForSequenceClassification": Task("text-classification", "ORTModelForSequenceClassification"),
    "ForTokenClassification": Task("token-classification", "ORTModelForTokenClassification"),
    "ForQuestionAnswering": Task("question-answering", "ORTModelForQuestionAnswering"),
    "ForMaskedLM": Task("fill-mask", "ORTModelForMaskedLM"),
    "ForImageClassification": Task("image-classification", "ORTModelForImageClassification"),
    "ForSemanticSegmentation": Task("image-segmentation", "ORTModelForSemanticSegmentation"),
    **{
        name: Task("zero-shot-image-classification", "ORTModelForZeroShotImageClassification")
        for name in ("CLIPModel", "SiglipModel")
    },
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
    sound = "input_features" in parameters
    can_generate = getattr(model, "can_generate", None)
    generates = can_generate is not None and can_generate()
    both = bool(getattr(config, "is_encoder_decoder", False))
    if both and generates and text + image + sound == 1 and not image:
        return "seq2seq" if text else "speech"
    wave = "input_values" in parameters
    if text and image and getattr(config, "model_type", "") in VISION_LANGUAGE and generates:
        return "vision-language"
    if text and image and hasattr(model, "text_model") and not both and not generates:
        return "dual-encoder"
    if not config or text + image + wave != 1 or both:
        raise UsageError(
            f"{title} is {type(model).__name__}: torchferry deploys decoders, encoder-decoders, "
            "encoders, image and audio models of transformers, of two towers as CLIP, and of "
            f"vision-language models {', '.join(VISION_LANGUAGE)}. Use torchferry export for this "
            "one"
        )
    if image or wave:
        return "image" if image else "audio"
    return "decoder" if generates else "encoder"


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
    kind: Kind,
    runtimes: Sequence[str],
    precisions: Sequence[str],
    tokenizer: Any,
    *,
    title: str,
    config: Any = None,
) -> None:
    """Refuse, before any work is done, what a runtime or a recipe cannot take.

    Raises:
        UsageError: a runtime does not run this kind, or needs a tokenizer that the model lacks.
    """
    unable = [name for name in runtimes if name not in KINDS[kind].runtimes]
    if unable:
        noun = _NOUNS.get(kind, kind)
        raise UsageError(f"{unable[0]} runs no {noun}, which {title} is: leave it out of --for")
    wanting = [name for name in runtimes if name in ("genai", "transformers.js")]
    if tokenizer is None and wanting and kind not in ("image", "audio"):
        raise UsageError(
            f"{title} has no tokenizer, and {wanting[0]} does not run without: give a model "
            "folder that holds one, or deploy --for onnxruntime"
        )
    other = [name for name in runtimes if name != "onnxruntime"]
    if "bf16" in precisions and other:
        raise UsageError(
            f"{other[0]} takes no tensors of bfloat16 on a CPU: leave bf16 out of --precision, or "
            "deploy it --for onnxruntime"
        )
    frames = getattr(config, "max_source_positions", _POSITIONS)
    if kind == "speech" and "genai" in runtimes and frames != _POSITIONS:
        raise UsageError(
            f"genai runs models that hear {2 * _POSITIONS} frames at a time, and {title} hears "
            f"{2 * frames}: leave genai out of --for"
        )
    if "int4" in precisions and not KINDS[kind].generates:
        raise UsageError(
            f"int4 is for models that generate tokens, and {title} is an {kind} model: int8 takes "
            "half the size of fp16 and computes nearly the same"
        )
