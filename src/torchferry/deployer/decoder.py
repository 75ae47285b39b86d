"""A deployed decoder in Python: transformers' ``generate`` over a session of onnxruntime."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import onnxruntime
import torch

from torchferry.deployer.cache import cache_class, cache_name, empty_cache
from torchferry.errors import RunError, UsageError
from torchferry.runner.outputs import to_tensor
from torchferry.seams.ort import ort_errors
from torchferry.zoo.library import import_transformers

__all__ = ["load_decoder", "open_session"]

_PAST, _PRESENT = "past_key_values.", "present."


def open_session(path: Path, threads: int = 0) -> onnxruntime.InferenceSession:
    """Load a graph on the CPU.

    Args:
        path: the ``.onnx`` file.
        threads: that it may use; as many as there are cores when 0.

    Raises:
        UsageError: there is no such file.
        RunError: onnxruntime cannot load it.
    """
    if not path.is_file():
        raise UsageError(f"no model at {path}")
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = threads
    try:
        return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    except ort_errors() as error:
        raise RunError(f"onnxruntime cannot load {path}: {str(error)[:600]}") from error


def load_decoder(folder: Path, path: Path | None = None, threads: int = 0) -> Any:
    """A deployed decoder as a model of transformers: ``generate(...)``, or called for logits.

    Sampling, beams, stopping and processors of logits are transformers' own. The cache stays in
    onnxruntime's values from step to step; only a search with beams copies it, to reorder them.

    Args:
        folder: holds ``config.json`` and ``generation_config.json``.
        path: the graph; the folder's default when ``None``.
        threads: of the session; as many as there are cores when 0.

    Raises:
        UsageError: a file is missing, or transformers is.
        RunError: onnxruntime cannot load the graph.
    """
    transformers = import_transformers(f"the deployed folder {folder}")
    config = transformers.AutoConfig.from_pretrained(folder, local_files_only=True)
    model = _decoder_class()(config, open_session(path or folder, threads))
    if (folder / "generation_config.json").is_file():
        read = transformers.GenerationConfig.from_pretrained
        model.generation_config = read(folder, local_files_only=True)
    return model


@cache
def _decoder_class() -> type[Any]:
    """A model of transformers, which is imported when the class is needed."""
    library = import_transformers("generation")

    model, mixin = library.PreTrainedModel, library.GenerationMixin

    # Its class is not known to mypy, as transformers is imported here.
    class SessionDecoder(model, mixin):  # type: ignore[misc,valid-type]
        """A decoder whose ``forward`` runs onnxruntime."""

        main_input_name = "input_ids"

        def __init__(self, config: Any, session: onnxruntime.InferenceSession) -> None:
            super().__init__(config)
            self.session = session
            self.inputs = {value.name: value for value in session.get_inputs()}
            self.outputs = [value.name for value in session.get_outputs()]
            self.generation_config = library.GenerationConfig.from_model_config(config)

        # Where inputs are expected, and what the logits are.
        device, dtype = torch.device("cpu"), torch.float32

        def generate(self, inputs: Any = None, **kwargs: Any) -> Any:
            """As transformers' ``generate``, with the cache in onnxruntime's values."""
            if kwargs.get(cache_name()) is None:
                kwargs[cache_name()] = cache_class()()
            return super().generate(inputs, **kwargs)

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
            held = cache if cache is not None else past_key_values
            held = cache_class()() if held is None else held
            tensors = _complete(input_ids, attention_mask, position_ids, held.get_seq_length())
            logits = _step(self, tensors, held)
            output = library.modeling_outputs.CausalLMOutputWithPast(logits=logits)
            output[cache_name()] = held
            return output

    return SessionDecoder


def _complete(
    input_ids: torch.Tensor, mask: torch.Tensor | None, positions: torch.Tensor | None, past: int
) -> dict[str, torch.Tensor]:
    """The inputs beside the cache; a mask that is left out masks nothing."""
    batch, length = input_ids.shape
    mask = torch.ones(batch, past + length, dtype=torch.int64) if mask is None else mask
    if positions is None:
        positions = (mask.cumsum(-1) - 1).clamp(min=0)
    return {
        "input_ids": input_ids,
        "attention_mask": mask,
        "position_ids": positions[:, -length:].expand(batch, -1),
    }


def _step(model: Any, tensors: dict[str, torch.Tensor], held: Any) -> torch.Tensor:
    """Run the graph; its keys and values take the place of those held, without a copy."""
    feeds = {
        name: onnxruntime.OrtValue.ortvalue_from_numpy(tensor.contiguous().numpy())
        for name, tensor in tensors.items()
        if name in model.inputs
    }
    for name, value in model.inputs.items():
        if name.startswith(_PAST):
            batch = len(tensors["input_ids"])
            feeds[name] = held.values.get(name) or empty_cache(value, batch)
    try:
        results = model.session.run_with_ort_values(model.outputs, feeds)
    except ort_errors() as error:
        raise RunError(f"onnxruntime failed: {str(error)[:600]}") from error
    named = dict(zip(model.outputs, results, strict=True))
    logits = to_tensor(named.pop("logits"))
    if logits is None:
        raise RunError("the graph's logits are no numbers: deploy the model again")
    held.values = {name.replace(_PRESENT, _PAST, 1): value for name, value in named.items()}
    return logits.float()
