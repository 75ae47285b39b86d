"""A deployed vision-language model in Python: transformers' ``generate`` over three sessions."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache, partial
from pathlib import Path
from typing import Any

import onnxruntime
import torch

from torchferry.deployer.generate.cache import KeepsCache, as_value, own_cache
from torchferry.deployer.generate.decoder import read_settings, run_step, run_values
from torchferry.deployer.generate.inputs import check_tokens
from torchferry.deployer.layout import EMBEDDING, MODEL, VISION
from torchferry.errors import UsageError
from torchferry.runner import open_session, to_tensor
from torchferry.zoo.library import import_transformers

__all__ = ["load_vision"]

_AXES = 3  # of the positions that Qwen-VL gives a token: time, row, column


def load_vision(folder: Path, path: Path, threads: int = 0) -> Any:
    """A deployed vision-language model as a model of transformers: ``generate(...)``, or called.

    Positions, the inputs of each step and beams are the work of transformers' own class, which
    holds no weights here.

    Args:
        folder: holds ``config.json`` and ``generation_config.json``.
        path: the decoder's graph; the others lie beside it.
        threads: of each session; as many as there are cores when 0.

    Raises:
        UsageError: a file is missing, or transformers is.
        RunError: onnxruntime cannot load a graph.
    """
    config, generation = read_settings(folder)
    end = path.name.removeprefix(MODEL)
    files = [path.with_name(f"{part}{end}") for part in (VISION, EMBEDDING, MODEL)]
    sessions = [open_session(file, threads=threads) for file in files]
    with torch.device("meta"):
        model = _vision_class(config.architectures[0])(config).eval()
    model.open(*sessions)
    model.generation_config = generation or model.generation_config
    return model


@cache
def _vision_class(name: str) -> type[Any]:
    """A model of transformers, which is imported when the class is needed."""
    library = import_transformers("generation")
    base: type[Any] = getattr(library, name)

    # Its class is not known to mypy, as transformers is imported here.
    class SessionVision(KeepsCache, base):  # type: ignore[misc]
        """A vision-language model whose ``forward`` runs onnxruntime."""

        def open(self, vision: Any, embedding: Any, session: Any) -> None:
            """Take the sessions of its parts."""
            self.vision, self.embedding, self.session = vision, embedding, session
            self.inputs = {value.name: value for value in session.get_inputs()}
            self.outputs = [value.name for value in session.get_outputs()]
            # `generate` calls it once before it repeats prompts for beams.
            self.base_model.get_image_features = partial(_encode, self)

        def forward(
            self,
            input_ids: torch.Tensor,
            attention_mask: torch.Tensor | None = None,
            position_ids: torch.Tensor | None = None,
            cache: Any = None,
            *,
            past_key_values: Any = None,
            pixel_values: torch.Tensor | None = None,
            image_grid_thw: torch.Tensor | None = None,
            mm_encoder_outputs: Any = None,
            mm_token_type_ids: Any = None,  # noqa: ARG002  (generate asks whether it is taken)
            **_: Any,
        ) -> Any:
            """Logits of some tokens (batch, sequence, vocabulary) and the cache after them."""
            held = own_cache(cache if cache is not None else past_key_values)
            seen = mm_encoder_outputs or {}
            if not seen and pixel_values is not None:
                seen = {"image": _encode(self, pixel_values, image_grid_thw)}
            return _step(
                self, input_ids, held, seen, attention_mask=attention_mask,
                position_ids=position_ids, grid=image_grid_thw,
            )  # fmt: skip

    return SessionVision


def _step(model: Any, ids: torch.Tensor, held: Any, seen: Mapping[str, Any], **given: Any) -> Any:
    """Logits of some tokens and the cache; ``given`` are forward's arguments on positions."""
    past, (batch, length) = held.get_seq_length(), ids.shape
    mask, positions, grid = (given[n] for n in ("attention_mask", "position_ids", "grid"))
    check_tokens("input_ids", ids, mask, past)
    mask = torch.ones(batch, past + length) if mask is None else mask
    if positions is None and grid is not None:
        kinds = (ids == model.config.image_token_id).to(torch.int32)
        found = model.model.get_rope_index(ids, kinds, grid, attention_mask=mask)
        positions, model.model.rope_deltas = found
    rank = len(model.inputs["position_ids"].shape)
    tensors = {
        "inputs_embeds": _embed(model, ids, seen), "attention_mask": mask.to(torch.int64),
        "position_ids": _positions(positions, mask, length, rank),
    }  # fmt: skip
    return run_step(model, tensors, held, batch)


def _encode(
    model: Any, pixel_values: torch.Tensor, image_grid_thw: torch.Tensor | None = None, **_: Any
) -> Any:
    """Features of images for the decoder: ``pooler_output`` has (tokens, hidden) for each."""
    kinds = {value.name: value.type for value in model.vision.get_inputs()}
    given = {"pixel_values": pixel_values, "image_grid_thw": image_grid_thw}
    fed = {n: as_value(x, kinds[n]) for n, x in given.items() if x is not None and n in kinds}
    features = to_tensor(run_values(model.vision, ["image_features"], fed, model.config)[0])
    if features is None:  # numbers have a dtype in torch
        raise AssertionError
    sizes = [len(features) // len(pixel_values)] * len(pixel_values)
    if image_grid_thw is not None:
        merged = model.config.vision_config.spatial_merge_size**2
        sizes = (image_grid_thw.prod(-1) // merged).tolist()
    output = import_transformers("generation").modeling_outputs.BaseModelOutputWithPooling
    return output(pooler_output=torch.split(features, sizes))


def _embed(model: Any, ids: torch.Tensor, seen: Mapping[str, Any]) -> onnxruntime.OrtValue:
    """Embeddings of tokens and images (batch, sequence, hidden).

    Raises:
        UsageError: there are more tokens for images than features of them, or fewer.
    """
    (slot,) = (x for x in model.embedding.get_inputs() if x.name == "image_features")
    features = torch.zeros(0, slot.shape[1])
    if seen.get("image") is not None:
        features = torch.cat(tuple(seen["image"].pooler_output))
        wanted = int((ids == model.config.image_token_id).sum())
        if len(features) != wanted:
            raise UsageError(
                f"input_ids holds {wanted} tokens of images, and the images give "
                f"{len(features)}: the model's processor gives what is right for text and images"
            )
    fed = {"input_ids": as_value(ids), "image_features": as_value(features, slot.type)}
    return run_values(model.embedding, ["inputs_embeds"], fed, model.config)[0]


def _positions(
    positions: torch.Tensor | None, mask: torch.Tensor, length: int, rank: int
) -> torch.Tensor:
    """Positions as the graph takes them: (batch, sequence), or three of these."""
    if positions is None:
        positions = (mask.cumsum(-1) - 1).clamp(min=0)
    if rank == _AXES and positions.ndim < rank:
        positions = positions.expand(_AXES, *positions.shape)
    # transformers puts the positions of text before the three.
    positions = positions[-_AXES:] if rank == _AXES else positions
    return positions[..., -length:].expand(*positions.shape[:-2], len(mask), -1).to(torch.int64)
