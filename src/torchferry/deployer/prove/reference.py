"""What PyTorch says: tokens of ``generate``, and the logits of every token of some texts."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch

from torchferry.deployer.prove.corpus import Picture, Prompt, Sound
from torchferry.values.fast_path import disable_fast_paths

__all__ = ["Agreement", "Generated", "Logits", "generated", "measure", "predict", "record_logits"]

_RIVALS = 8  # tokens that a tie may be between


@dataclass(frozen=True)
class Generated:
    """Greedy tokens of some batches.

    Attributes:
        tokens: of each batch, of each row: prompt and what follows.
        rivals: of each batch, step and row: the likeliest tokens, and how far below the best their
            logits are, relative to the largest; nothing if they are not known.
    """

    tokens: list[list[list[int]]]
    rivals: list[list[list[dict[int, float]]]]


def generated(model: Any, batches: Sequence[Prompt], steps: int, pad: int) -> Generated:
    """What ``model.generate`` gives, never stopping early."""
    tokens, rivals = [], []
    for batch in batches:
        with torch.no_grad():
            result = model.generate(
                **batch.arguments, max_new_tokens=steps, min_new_tokens=steps, do_sample=False,
                num_beams=1, pad_token_id=pad, return_dict_in_generate=True, output_logits=True,
            )  # fmt: skip
        tokens.append(result.sequences.tolist())
        rivals.append([_rivals(step.float()) for step in result.logits])
    return Generated(tokens, rivals)


def _rivals(logits: torch.Tensor) -> list[dict[int, float]]:
    best = logits.topk(min(_RIVALS, logits.shape[-1]), dim=-1)
    apart = (best.values[:, :1] - best.values) / logits.abs().amax(-1, keepdim=True).clamp(
        min=1e-6
    )
    rows = zip(best.indices.tolist(), apart.tolist(), strict=True)
    return [dict(zip(*row, strict=True)) for row in rows]


def predict(
    model: Any, ids: torch.Tensor, before: Picture | Sound | None = None, **options: Any
) -> torch.Tensor:
    """Logits (batch, sequence, vocabulary) of the tokens that follow in some texts.

    Args:
        model: of transformers, or a deployed one; an encoder-decoder reads the text that it is
            to write.
        ids: tokens (batch, sequence).
        before: what a model of speech hears, one recording, or the image in a text that a
            vision-language model sees before.
        options: more arguments of the model.
    """
    if isinstance(before, Sound):
        outputs = model(input_features=before.input_features, decoder_input_ids=ids, **options)
    elif before is not None:
        outputs = model(**before.followed_by(ids).arguments, **options)
        return torch.as_tensor(outputs.logits)[:, -ids.shape[1] :]
    elif model.config.is_encoder_decoder:
        outputs = model(input_ids=ids, decoder_input_ids=ids, **options)
    else:
        outputs = model(ids, **options)
    logits: torch.Tensor = outputs.logits
    return logits


@dataclass(frozen=True)
class Logits:
    """The logits of texts, kept in a file: they are larger than the model if it is small.

    Attributes:
        rows: tokens of the texts, (1, sequence).
        stored: float32, (tokens in all, vocabulary), mapped.
    """

    rows: list[torch.Tensor]
    stored: np.memmap[Any, Any]

    def each(self) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        """Tokens (1, sequence) and logits (sequence, vocabulary) of each text."""
        place = 0
        for row in self.rows:
            count = row.shape[1]
            yield row, torch.from_numpy(np.array(self.stored[place : place + count]))
            place += count


def record_logits(
    run: Callable[[torch.Tensor], torch.Tensor], rows: list[torch.Tensor], path: Path
) -> Logits:
    """Run a model on texts and keep its logits in a file.

    Args:
        run: tokens (1, sequence) to logits (1, sequence, vocabulary).
        rows: the texts.
        path: of the file.
    """
    stored: np.memmap[Any, Any] | None = None
    place, total = 0, sum(row.shape[1] for row in rows)
    with torch.no_grad(), disable_fast_paths():
        for row in rows:
            logits = run(row)[0].float().numpy()
            if stored is None:
                shape = (total, logits.shape[-1])
                stored = np.memmap(path, np.float32, "w+", shape=shape)
            stored[place : place + len(logits)] = logits
            place += len(logits)
    if stored is None:  # there is always a text
        raise AssertionError
    stored.flush()
    return Logits(rows, stored)


@dataclass(frozen=True)
class Agreement:
    """How near a model is to the reference, over all tokens of the texts.

    Attributes:
        tokens: how many were compared.
        top1: share of tokens with the same most likely next token.
        kl: mean Kullback-Leibler divergence from the reference, in nats.
        perplexity: of the texts under the model.
        reference: of the texts under the reference.
        largest: the largest difference of a logit.
    """

    tokens: int
    top1: float
    kl: float
    perplexity: float
    reference: float
    largest: float

    limits: ClassVar[Mapping[str, float]] = {
        "fp32": 1e-6, "fp16": 1e-3, "bf16": 0.05, "int8": 0.1, "int4": 1.0, "int4+fp16": 1.0,
    }  # fmt: skip

    @property
    def distance(self) -> float:
        """What ``limits`` are held against, in nats.

        fp32, fp16 and bf16 round. What int8 and int4 lose is for the user to judge, and beyond
        their limits there is nothing left to judge.
        """
        return self.kl

    @property
    def cells(self) -> dict[str, str]:
        """The figures of a table, by heading."""
        return {
            "top-1": f"{100 * self.top1:.1f} %",
            "KL": f"{max(self.kl, 0):.2g}",
            "perplexity": f"{self.perplexity:.4g}",
        }

    @property
    def note(self) -> str:
        """What the figures are of."""
        return (
            f"Over {self.tokens} tokens that no calibration has seen; the perplexity of PyTorch "
            f"is {self.reference:.4g}. KL divergence from PyTorch's distribution in nats."
        )


def measure(run: Callable[[torch.Tensor], torch.Tensor], reference: Logits) -> Agreement:
    """Compare a model with the reference on its texts.

    Args:
        run: tokens (1, sequence) to logits (1, sequence, vocabulary).
        reference: what it is compared with.
    """
    count, same, kl, largest = 0, 0, 0.0, 0.0
    loss, wanted_loss, predicted = 0.0, 0.0, 0
    with torch.no_grad():
        for row, wanted in reference.each():
            logits = run(row)[0].float()
            ours, theirs = logits.log_softmax(-1), wanted.log_softmax(-1)
            count += len(logits)
            same += int((logits.argmax(-1) == wanted.argmax(-1)).sum())
            kl += float((theirs.exp() * (theirs - ours)).sum())
            largest = max(largest, float((logits - wanted).abs().max()))
            following = row[0, 1:, None]
            loss -= float(ours[:-1].gather(1, following).sum())
            wanted_loss -= float(theirs[:-1].gather(1, following).sum())
            predicted += len(following)
    return Agreement(
        count,
        same / count,
        kl / count,
        float(np.exp(loss / predicted)),
        float(np.exp(wanted_loss / predicted)),
        largest,
    )
