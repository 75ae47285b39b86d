"""Texts as tokens: prompts, texts to measure on, texts to calibrate with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from importlib.resources import files
from pathlib import Path
from typing import Any

import torch

from torchferry.errors import UsageError
from torchferry.zoo.inputs.multimodal import prefill_sets
from torchferry.zoo.inputs.seq2seq import feature_sets
from torchferry.zoo.weights import seeded

__all__ = [
    "LEAST_TOKENS",
    "Batch",
    "Picture",
    "Prompt",
    "Sound",
    "calibration_rows",
    "evaluation_rows",
    "evaluation_texts",
    "pictures",
    "prompts",
    "sounds",
]

LEAST_TOKENS = 512
"""Of a text to calibrate with: fewer say too little of a layer's inputs."""
_ROW, _EVALUATED = 256, 128  # tokens of a row
_RANDOM_ROWS, _RANDOM_LENGTH = 8, 24  # where there is no tokenizer
_IMAGES = ("pixel_values", "image_grid_thw")
_GRIDS = ((2, 8), (8, 2), (6, 4))  # rows and columns of patches, in pairs
_PROMPTS = ("The capital of France is", "Once upon a time there was", "One, two, three,")


@dataclass(frozen=True)
class Batch:
    """Prompts side by side, filled up on the left.

    Attributes:
        input_ids: int64, (batch, sequence).
        attention_mask: int64; 0 where it is filled up.
    """

    input_ids: torch.Tensor
    attention_mask: torch.Tensor

    @property
    def arguments(self) -> dict[str, Any]:
        """Of ``generate``."""
        return {"input_ids": self.input_ids, "attention_mask": self.attention_mask}


@dataclass(frozen=True)
class Sound:
    """Recordings side by side, of a model that writes down what is said.

    Attributes:
        input_features: (batch, mel bins, frames).
        language: of a model that knows several, so that no runtime guesses.
    """

    input_features: torch.Tensor
    language: str = ""

    @property
    def arguments(self) -> dict[str, Any]:
        """Of ``generate``."""
        named = {"language": self.language, "task": "transcribe"} if self.language else {}
        return {"input_features": self.input_features, **named}


@dataclass(frozen=True)
class Picture:
    """Texts with an image in each, side by side, all of one length.

    Attributes:
        input_ids: int64, (batch, sequence).
        images: ``pixel_values``, and ``image_grid_thw`` if the model takes it.
        token: that stands for a part of an image.
    """

    input_ids: torch.Tensor
    images: Mapping[str, torch.Tensor]
    token: int

    @property
    def is_image(self) -> torch.Tensor:
        """Which tokens are those of an image, bool (batch, sequence)."""
        return self.input_ids == self.token

    @property
    def arguments(self) -> dict[str, Any]:
        """Of ``generate``; Qwen-VL counts positions by what kind a token is."""
        kinds = {"mm_token_type_ids": self.is_image.to(torch.int64)}
        mask = torch.ones_like(self.input_ids)
        kinds = kinds if "image_grid_thw" in self.images else {}
        return {"input_ids": self.input_ids, "attention_mask": mask, **self.images, **kinds}

    def followed_by(self, ids: torch.Tensor) -> Picture:
        """With more text after it, (1, sequence)."""
        return replace(self, input_ids=torch.cat([self.input_ids, ids], dim=1))


Prompt = Batch | Picture | Sound
"""What a model goes on from."""


def pictures(model: Any) -> tuple[Picture, Picture]:
    """A text with an image alone, and three: noise in random words, as no model comes with one.

    The images have other sizes than those that the model was exported with, if it takes any.
    """
    token, start = (
        model.config.image_token_id,
        getattr(model.config, "vision_start_token_id", None),
    )
    three, _, one = prefill_sets(model, seeded(3), grids=_GRIDS)
    found = []
    for fed in (one, three):
        ids = fed["input_ids"]
        if start is not None:  # genai counts images by it
            first = int((ids[0] == token).nonzero()[0])
            ids = torch.cat(
                [ids[:, :first], ids.new_full((len(ids), 1), start), ids[:, first:]], 1
            )
        images: dict[str, torch.Tensor] = {n: x for n, x in fed.items() if n in _IMAGES}
        found.append(Picture(ids, images, token))
    return found[0], found[1]


def sounds(model: Any) -> tuple[Sound, Sound]:
    """One recording alone, and three: noise, as no model comes with a recording."""
    three, _, one = feature_sets(model, seeded(3))
    language = "en" if getattr(model.generation_config, "is_multilingual", False) else ""
    first, second = (Sound(fed["input_features"], language) for fed in (one, three))
    return first, second


def prompts(tokenizer: Any, vocabulary: int, pad: int) -> tuple[Batch, Batch]:
    """One prompt alone, and three of different lengths.

    Args:
        tokenizer: of transformers, or ``None``: the tokens are random then.
        vocabulary: number of tokens.
        pad: the token that fills up.
    """
    if tokenizer is None:
        rows = [_random(length, vocabulary, pad) for length in (5, 7, 3)]
    else:
        rows = [_encode(tokenizer, text) for text in _PROMPTS]
        rows = [row[row != pad] for row in rows]  # else it would look filled up
        # Of a tokenizer that knows no English.
        rows = [row if len(row) else _random(5, vocabulary, pad) for row in rows]
    return _filled(rows[:1], pad), _filled(rows, pad)


def evaluation_rows(tokenizer: Any, vocabulary: int, longest: int) -> list[torch.Tensor]:
    """Texts to measure on, each (1, sequence); random tokens if there is no tokenizer.

    Args:
        tokenizer: see `prompts`.
        vocabulary: see `prompts`.
        longest: tokens that the model takes.
    """
    if tokenizer is None:
        return _random_rows(vocabulary, longest, seed=1)
    texts = evaluation_texts()
    rows = [_encode(tokenizer, text)[: min(longest, _EVALUATED)] for text in texts]
    return [row[None] for row in rows if len(row) > 1]


def evaluation_texts() -> list[str]:
    """The paragraphs that models are measured on."""
    return _read("evaluation.txt").split("\n\n")


def calibration_rows(
    tokenizer: Any, vocabulary: int, longest: int, text: Path | None
) -> list[torch.Tensor]:
    """Texts to calibrate with, each (1, sequence), none of them seen by `evaluation_rows`.

    Args:
        tokenizer: see `prompts`.
        vocabulary: number of tokens.
        longest: see `evaluation_rows`.
        text: the user's own, UTF-8; the default set when ``None``.

    Raises:
        UsageError: the file cannot be read, or is too short.
    """
    if tokenizer is None:
        if text is not None:
            raise UsageError(f"--calibrate {text} needs a tokenizer, and the model has none")
        return _random_rows(vocabulary, longest, seed=2)
    ids = _encode(tokenizer, _read("calibration.txt") if text is None else _read_file(text))
    if text is not None and len(ids) < LEAST_TOKENS:
        raise UsageError(
            f"--calibrate {text} has {len(ids)} tokens, and {LEAST_TOKENS} at least are needed: "
            "give a longer text of the kind that the model will read"
        )
    return [row[None] for row in torch.split(ids, min(longest, _ROW)) if len(row) > 1]


def _encode(tokenizer: Any, text: str) -> torch.Tensor:
    return torch.tensor(tokenizer(text, truncation=False, verbose=False)["input_ids"])


def _filled(rows: list[torch.Tensor], pad: int) -> Batch:
    longest = max(map(len, rows))
    ids = torch.full((len(rows), longest), pad)
    mask = torch.zeros_like(ids)
    for place, row in enumerate(rows):
        ids[place, longest - len(row) :] = row
        mask[place, longest - len(row) :] = 1
    return Batch(ids, mask)


def _random(length: int, vocabulary: int, pad: int | None, seed: int = 0) -> torch.Tensor:
    ids = torch.randint(vocabulary - 1, (length,), generator=seeded(seed * 1000 + length))
    return ids if pad is None else ids + (ids >= pad)


def _random_rows(vocabulary: int, longest: int, seed: int) -> list[torch.Tensor]:
    return [
        _random(min(longest, _RANDOM_LENGTH), vocabulary, None, seed * 100 + row)[None]
        for row in range(_RANDOM_ROWS)
    ]


def _read(name: str) -> str:
    return (files("torchferry.deployer.texts") / name).read_text("utf-8")


def _read_file(path: Path) -> str:
    try:
        return path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"cannot read --calibrate {path}: {error}") from error
