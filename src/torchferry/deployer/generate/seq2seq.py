"""A deployed encoder-decoder in Python: transformers' ``generate`` over two sessions."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import onnxruntime
import torch
from torch import nn

from torchferry.deployer.generate.cache import (
    KeepsCache,
    as_value,
    cache_name,
    empty_cache,
    own_cache,
)
from torchferry.deployer.generate.decoder import (
    PAST,
    PRESENT,
    load_decoder,
    read_settings,
    run_values,
)
from torchferry.deployer.generate.inputs import check_tokens
from torchferry.deployer.generate.vision import load_vision
from torchferry.deployer.layout import DECODER, ENCODER
from torchferry.deployer.write.merge import CROSS
from torchferry.runner import open_session, to_tensor
from torchferry.zoo.library import import_transformers

__all__ = ["GENERATORS", "load_seq2seq"]

_STRIDES = (1, 2)  # of Whisper's convolutions: two frames make one position


def load_seq2seq(folder: Path, path: Path, threads: int = 0) -> Any:
    """A deployed encoder-decoder as a model of transformers: ``generate(...)``, or called.

    Args:
        folder: holds ``config.json`` and ``generation_config.json``.
        path: the decoder's graph; the encoder's lies beside it.
        threads: of each session; as many as there are cores when 0.

    Raises:
        UsageError: a file is missing, or transformers is.
        RunError: onnxruntime cannot load a graph.
    """
    config, generation = read_settings(folder)
    encoder = path.with_name(path.name.replace(DECODER, ENCODER))
    sessions = [open_session(one, threads=threads) for one in (encoder, path)]
    model = _seq2seq_class(config.model_type == "whisper")(config, *sessions)
    model.generation_config = generation or model.generation_config
    return model


class _SessionEncoder(nn.Module):
    """What transformers calls for the states of the encoder."""

    def __init__(self, session: onnxruntime.InferenceSession, config: Any) -> None:
        super().__init__()
        self.session, self.config = session, config
        self.types = {value.name: value.type for value in session.get_inputs()}
        self.main_input_name = next(iter(self.types))

    def forward(
        self,
        input_ids: torch.Tensor | None = None,
        attention_mask: torch.Tensor | None = None,
        input_features: torch.Tensor | None = None,
        **_: Any,
    ) -> Any:
        """States (batch, sequence, hidden); a mask that is left out masks nothing."""
        if "input_ids" in self.types:
            check_tokens("input_ids", input_ids, attention_mask)
        if input_ids is not None and attention_mask is None:
            attention_mask = torch.ones_like(input_ids)
        known = {
            "input_ids": input_ids,
            "attention_mask": attention_mask,
            "input_features": input_features,
        }
        feeds = {
            name: as_value(tensor, kind)
            for name, kind in self.types.items()
            if (tensor := known.get(name)) is not None
        }
        (states,) = run_values(self.session, ["last_hidden_state"], feeds, self.config)
        outputs = import_transformers("generation").modeling_outputs.BaseModelOutput
        return outputs(last_hidden_state=to_tensor(states))


def _whisper_bases(library: Any) -> tuple[type[Any], ...]:
    """What gives a model Whisper's own ``generate``, which puts prompts of languages in front."""

    # Its class is not known to mypy, as transformers is imported here.
    class Forgetful(library.GenerationMixin):  # type: ignore[misc]
        """Returns no cache, which Whisper's ``generate`` would take apart."""

        def generate(self, *args: Any, **kwargs: Any) -> Any:
            """As transformers' own."""
            result = super().generate(*args, **kwargs)
            if isinstance(result, torch.Tensor):
                return result
            return type(result)(**{n: x for n, x in result.items() if n != cache_name()})

    mixins = library.WhisperForConditionalGeneration.__mro__
    own = next(base for base in mixins if base.__name__ == "WhisperGenerationMixin")
    return own, Forgetful


def _frames(config: Any) -> Any:
    """What Whisper's ``generate`` reads of the model: how many frames make one position."""
    ends = {f"conv{i + 1}": SimpleNamespace(stride=(n,)) for i, n in enumerate(_STRIDES)}
    return SimpleNamespace(encoder=SimpleNamespace(**ends), config=config)


@cache
def _seq2seq_class(speech: bool) -> type[Any]:
    """A model of transformers, which is imported when the class is needed.

    Args:
        speech: whether it is Whisper.
    """
    library = import_transformers("generation")
    mixins = _whisper_bases(library) if speech else (library.GenerationMixin,)

    bases = (KeepsCache, *mixins, library.PreTrainedModel)

    class SessionSeq2Seq(*bases):  # type: ignore[misc]  # as transformers is imported here
        """An encoder-decoder whose ``forward`` runs onnxruntime."""

        main_input_name = "input_features" if speech else "input_ids"

        def __init__(self, config: Any, encoder: Any, session: Any) -> None:
            super().__init__(config)
            self.encoder, self.session = _SessionEncoder(encoder, config), session
            self.inputs = {value.name: value for value in session.get_inputs()}
            self.outputs = [value.name for value in session.get_outputs()]
            self.generation_config = library.GenerationConfig.from_model_config(config)
            self.model = _frames(config)

        def get_encoder(self, *_: Any) -> nn.Module:
            """What ``generate`` calls once for a prompt."""
            return self.encoder

        def forward(
            self,
            input_ids: torch.Tensor | None = None,
            attention_mask: torch.Tensor | None = None,
            decoder_input_ids: torch.Tensor | None = None,
            encoder_outputs: Any = None,
            **more: Any,
        ) -> Any:
            """Logits of the decoder's tokens (batch, sequence, vocabulary) and the cache."""
            held = own_cache(more.get("cache", more.get("past_key_values")))
            check_tokens("decoder_input_ids", decoder_input_ids)
            if encoder_outputs is None:
                heard = more.get("input_features")
                encoder_outputs = self.encoder(input_ids, attention_mask, heard)
            states = encoder_outputs[0]
            logits = _step(self, decoder_input_ids, states, attention_mask, held)
            kind = library.modeling_outputs.Seq2SeqLMOutput
            output = kind(logits=logits, encoder_last_hidden_state=states)
            output[cache_name()] = held
            return output

    return SessionSeq2Seq


def _step(
    model: Any, ids: Any, states: torch.Tensor, mask: torch.Tensor | None, held: Any
) -> torch.Tensor:
    """Run the decoder; what it knows of the encoder's states stays, and is not read again."""
    later = bool(held.values)
    mask = torch.ones(states.shape[:2], dtype=torch.int64) if mask is None else mask
    tensors = {
        "input_ids": ids, "encoder_hidden_states": states, "encoder_attention_mask": mask,
    }  # fmt: skip
    feeds = {
        name: as_value(tensor, model.inputs[name].type)
        for name, tensor in tensors.items()
        if name in model.inputs
    }
    feeds["use_cache_branch"] = onnxruntime.OrtValue.ortvalue_from_numpy(np.array([later]))
    batch = len(tensors["input_ids"])
    for name, value in model.inputs.items():
        if name.startswith(PAST):
            feeds[name] = held.values.get(name) or empty_cache(value, batch)
    wanted = [name for name in model.outputs if not (later and CROSS in name)]
    values = run_values(model.session, wanted, feeds, model.config)
    results = dict(zip(wanted, values, strict=True))
    logits = to_tensor(results.pop("logits"))
    if logits is None:  # numbers have a dtype in torch
        raise AssertionError
    kept = {name.replace(PRESENT, PAST, 1): value for name, value in results.items()}
    held.values = {**held.values, **kept}
    return logits.float()


GENERATORS = {
    "decoder": load_decoder, "seq2seq": load_seq2seq, "speech": load_seq2seq,
    "vision-language": load_vision,
}  # fmt: skip
"""What loads a deployed folder of each kind of model that generates."""
