"""A deployed decoder in Python: transformers' ``generate`` over a session of onnxruntime."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import onnxruntime
import torch

from torchferry.deployer.generate.cache import (
    KeepsCache,
    as_value,
    cache_name,
    empty_cache,
    own_cache,
)
from torchferry.deployer.generate.inputs import check_tokens, explain_refusal
from torchferry.errors import RunError, UsageError
from torchferry.runner import open_session, to_tensor
from torchferry.seams.ort import ort_errors
from torchferry.zoo.library import import_transformers

__all__ = ["PAST", "PRESENT", "load_decoder", "read_settings", "run_step", "run_values"]

PAST = "past_key_values."
"""What names of keys and values begin with, where a graph takes them."""
PRESENT = "present."
"""What names of keys and values begin with, where a graph gives them."""


def load_decoder(folder: Path, path: Path, threads: int = 0) -> Any:
    """A deployed decoder as a model of transformers: ``generate(...)``, or called for logits.

    Sampling, beams, stopping and processors of logits are transformers' own. The cache stays in
    onnxruntime's values from step to step; only a search with beams copies it, to reorder them.

    Args:
        folder: holds ``config.json`` and ``generation_config.json``.
        path: the graph.
        threads: of the session; as many as there are cores when 0.

    Raises:
        UsageError: a file is missing, or transformers is.
        RunError: onnxruntime cannot load the graph.
    """
    config, generation = read_settings(folder)
    model = _decoder_class()(config, open_session(path, threads=threads))
    model.generation_config = generation or model.generation_config
    return model


def read_settings(folder: Path) -> tuple[Any, Any]:
    """The configuration of a model of transformers, and that of its ``generate`` if there is one.

    Raises:
        UsageError: transformers is not installed.
    """
    transformers = import_transformers(f"the deployed folder {folder}")
    config = transformers.AutoConfig.from_pretrained(folder, local_files_only=True)
    if not (folder / "generation_config.json").is_file():
        return config, None
    read = transformers.GenerationConfig.from_pretrained
    return config, read(folder, local_files_only=True)


def run_values(
    session: onnxruntime.InferenceSession,
    outputs: list[str],
    feeds: dict[str, onnxruntime.OrtValue],
    config: Any,
) -> list[onnxruntime.OrtValue]:
    """Run a graph on values of onnxruntime.

    Args:
        session: of the graph.
        outputs: that are wanted.
        feeds: its inputs by name.
        config: of the model, to say what does not fit.

    Raises:
        UsageError: onnxruntime fails, and the inputs are not what the model takes.
        RunError: onnxruntime fails otherwise.
    """
    try:
        results: list[onnxruntime.OrtValue] = session.run_with_ort_values(outputs, feeds)
    except ort_errors() as error:
        if reason := explain_refusal(session.get_inputs(), feeds, config.get_text_config()):
            raise UsageError(f"the deployed model does not run: {reason}") from error
        raise RunError(f"onnxruntime failed: {' '.join(str(error).split())[:300]}") from error
    return results


@cache
def _decoder_class() -> type[Any]:
    """A model of transformers, which is imported when the class is needed."""
    library = import_transformers("generation")

    model, mixin = library.PreTrainedModel, library.GenerationMixin

    # Its class is not known to mypy, as transformers is imported here.
    class SessionDecoder(KeepsCache, model, mixin):  # type: ignore[misc,valid-type]
        """A decoder whose ``forward`` runs onnxruntime."""

        main_input_name = "input_ids"

        def __init__(self, config: Any, session: onnxruntime.InferenceSession) -> None:
            super().__init__(config)
            self.session = session
            self.inputs = {value.name: value for value in session.get_inputs()}
            self.outputs = [value.name for value in session.get_outputs()]
            self.generation_config = library.GenerationConfig.from_model_config(config)

        def forward(
            self,
            input_ids: torch.Tensor,
            attention_mask: torch.Tensor | None = None,
            position_ids: torch.Tensor | None = None,
            cache: Any = None,
            past_key_values: Any = None,
            **_: Any,
        ) -> Any:
            """Logits of some tokens (batch, sequence, vocabulary) and the cache after them."""
            held = own_cache(cache if cache is not None else past_key_values)
            tensors = _complete(input_ids, attention_mask, position_ids, held.get_seq_length())
            return run_step(self, tensors, held, len(input_ids))

    return SessionDecoder


def _complete(
    input_ids: torch.Tensor, mask: torch.Tensor | None, positions: torch.Tensor | None, past: int
) -> dict[str, torch.Tensor]:
    """The inputs beside the cache; a mask that is left out masks nothing."""
    check_tokens("input_ids", input_ids, mask, past)
    batch, length = input_ids.shape
    mask = torch.ones(batch, past + length) if mask is None else mask
    mask = mask.to(torch.int64)
    if positions is None:
        positions = (mask.cumsum(-1) - 1).clamp(min=0)
    return {
        "input_ids": input_ids.to(torch.int64),
        "attention_mask": mask,
        "position_ids": positions[:, -length:].expand(batch, -1).to(torch.int64),
    }


def run_step(model: Any, inputs: Mapping[str, Any], held: Any, batch: int) -> Any:
    """Run a decoder; its keys and values take the place of those held, without a copy.

    Args:
        model: with the ``session``, its ``inputs`` by name and its ``outputs``.
        inputs: beside the cache: tensors, or onnxruntime's values.
        held: the cache.
        batch: how many sequences there are.

    Returns: transformers' output: logits (batch, sequence, vocabulary), float32, and the cache.
    """
    feeds = {
        name: as_value(x) if isinstance(x, torch.Tensor) else x
        for name, x in inputs.items()
        if name in model.inputs
    }
    for name, value in model.inputs.items():
        if name.startswith(PAST):
            feeds[name] = held.values.get(name) or empty_cache(value, batch)
    results = run_values(model.session, model.outputs, feeds, model.config)
    named = dict(zip(model.outputs, results, strict=True))
    logits = to_tensor(named.pop("logits"))
    if logits is None:
        raise RunError("the graph's logits are no numbers: deploy the model again")
    held.values = {name.replace(PRESENT, PAST, 1): value for name, value in named.items()}
    kind = import_transformers("generation").modeling_outputs.CausalLMOutputWithPast
    output = kind(logits=logits.float())
    output[cache_name()] = held
    return output
