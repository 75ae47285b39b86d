"""Folders of sentence-transformers: a text encoder, pooling and what follows, in one module.

The modules are few and their settings lie in JSON files, so that neither the package nor any code
is needed: ``modules.json`` lists them, each has a folder of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import nn

from torchferry.errors import UsageError
from torchferry.sources.checkpoint import load_checkpoint, map_checkpoint
from torchferry.sources.loaded import Loaded
from torchferry.sources.mapped import map_file, read_json
from torchferry.zoo.inputs.text import encoder_inputs
from torchferry.zoo.weights import seeded

__all__ = ["is_sentence_folder", "load_sentences"]

Features = dict[str, torch.Tensor]
_EMBEDDING = "sentence_embedding"
_MOST = 1_000_000
_SIZES = ((2, 7, ()), (3, 11, (0, 2, 5)), (1, 5, ()))  # batch, sequence, padding


def is_sentence_folder(text: str) -> bool:
    """Whether a folder is one of sentence-transformers."""
    return bool(text) and (Path(text) / "modules.json").is_file()


def load_sentences(text: str, *, mapped: bool = False) -> Loaded:
    """Load the encoder with pooling and all that follows, and sets of tokens for it.

    The outputs are ``token_embeddings`` (batch, sequence, size) and ``sentence_embedding``
    (batch, size), as `SentenceTransformer.forward` names them.

    Args:
        text: the folder.
        mapped: leave the encoder's weights in their files.

    Raises:
        UsageError: a file is missing or damaged, or a module is of a kind that is not read.
    """
    folder = Path(text)
    listed = read_json(folder / "modules.json")
    if not isinstance(listed, list) or not all(isinstance(one, dict) for one in listed):
        raise UsageError(f"{folder / 'modules.json'} lists no modules; save the model again")
    kinds = [str(one.get("type", "")).rpartition(".")[2] for one in listed]
    unknown = sorted({*kinds[1:]} - _STAGES.keys()) if kinds[:1] == ["Transformer"] else kinds[:1]
    if unknown:
        raise UsageError(
            f"{folder} has a module {unknown[0]!r}; torchferry reads Transformer followed by "
            f"{', '.join(_STAGES)}: give package.module:factory"
        )
    place = folder / str(listed[0].get("path", ""))
    checkpoint = map_checkpoint(place, encoder=True) if mapped else None
    encoder = checkpoint.model if checkpoint else load_checkpoint(place, encoder=True)
    stages = [
        _STAGES[kind](folder / str(one.get("path", "")))
        for kind, one in zip(kinds[1:], listed[1:], strict=True)
    ]
    model = SentenceEncoder(encoder, stages).eval()
    files = checkpoint.files if checkpoint else ()
    return Loaded(model, [_tokens(encoder, *size) for size in _SIZES], files=files)


def _tokens(encoder: nn.Module, batch: int, sequence: int, padding: tuple[int, ...]) -> Any:
    generator = seeded(batch)
    return encoder_inputs(
        encoder, batch=batch, sequence=sequence, generator=generator, padding=padding
    )


class SentenceEncoder(nn.Module):
    """An encoder and the modules that follow it, each of which reads and adds features."""

    def __init__(self, encoder: nn.Module, stages: list[nn.Module]) -> None:
        super().__init__()
        self.encoder = encoder
        self.stages = nn.ModuleList(stages)

    def forward(
        self,
        input_ids: torch.Tensor,
        attention_mask: torch.Tensor,
        token_type_ids: torch.Tensor | None = None,
    ) -> Features:
        """Return ``token_embeddings`` and ``sentence_embedding``."""
        given = {} if token_type_ids is None else {"token_type_ids": token_type_ids}
        outputs = self.encoder(input_ids=input_ids, attention_mask=attention_mask, **given)
        features = {"token_embeddings": outputs[0], "attention_mask": attention_mask}
        for stage in self.stages:
            features = stage(features)
        return {name: value for name, value in features.items() if name != "attention_mask"}


class _Pooling(nn.Module):
    """One vector a sentence: pooled in each of some ways, side by side."""

    def __init__(self, ways: list[str]) -> None:
        super().__init__()
        self.ways = ways

    def forward(self, features: Features) -> Features:
        """Add ``sentence_embedding``."""
        mask = features["attention_mask"].unsqueeze(-1)
        pooled = [_WAYS[way](features["token_embeddings"], mask) for way in self.ways]
        return {**features, _EMBEDDING: torch.cat(pooled, -1)}


class _Applied(nn.Module):
    """A module of PyTorch, applied to one feature."""

    def __init__(self, module: nn.Module, source: str, target: str) -> None:
        super().__init__()
        self.module, self.source, self.target = module, source, target

    def forward(self, features: Features) -> Features:
        """Replace the feature, or add another."""
        return {**features, self.target: self.module(features[self.source])}


class _Unit(nn.Module):
    """Vectors of length 1."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Normalize along the last axis."""
        return nn.functional.normalize(x, dim=-1)


def _sum(x: torch.Tensor, mask: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Sums over the tokens that are not padding and their number, in float32 at least."""
    kind = torch.promote_types(x.dtype, torch.float32)
    count = mask.to(x.dtype).sum(1, dtype=kind).clamp(min=1e-9)
    return (x * mask.to(x.dtype)).sum(1, dtype=kind), count


def _mean(x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    total, count = _sum(x, mask)
    return (total / count).to(x.dtype)


def _mean_of_root(x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    total, count = _sum(x, mask)
    return (total / count.sqrt()).to(x.dtype)


def _weighted_mean(x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """Later tokens weigh more; the first that is not padding has weight 1."""
    place = torch.arange(1, x.shape[1] + 1, device=x.device).view(1, -1, 1)
    place = place - mask.to(torch.int32).argmax(1, keepdim=True)
    weight = (mask * place).to(torch.promote_types(x.dtype, torch.float32))
    return ((x * weight).sum(1) / weight.sum(1).clamp(min=1e-9)).to(x.dtype)


def _largest(x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    return x.masked_fill(mask == 0, float("-inf")).amax(1)


def _first(x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    place = mask.to(torch.int32).argmax(1, keepdim=True)
    return x.gather(1, place.to(torch.int64).expand(-1, 1, x.shape[-1])).squeeze(1)


def _last(x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """The last token that is not padding; zero if all are."""
    place = x.shape[1] - 1 - mask.flip(1).to(torch.int32).argmax(1, keepdim=True)
    return (x * mask.to(x.dtype)).gather(1, place.expand(-1, 1, x.shape[-1])).squeeze(1)


_WAYS: dict[str, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]] = {
    "cls": _first,
    "max": _largest,
    "mean": _mean,
    "mean_sqrt_len_tokens": _mean_of_root,
    "weightedmean": _weighted_mean,
    "lasttoken": _last,
}
"""By the names and in the order in which sentence-transformers puts them side by side."""
_OLD_NAMES = {"cls_token": "cls", "max_tokens": "max", "mean_tokens": "mean",
              "weightedmean_tokens": "weightedmean"}  # fmt: skip


def _read_pooling(folder: Path) -> nn.Module:
    settings = _read_settings(folder)
    ways = settings.get("pooling_mode")
    if ways is None:  # before version 5.2: a flag for each way
        flags = {
            name.removeprefix("pooling_mode_"): value
            for name, value in settings.items()
            if name.startswith("pooling_mode_")
        }
        named = {_OLD_NAMES.get(name, name) for name, value in flags.items() if value}
        ways = [way for way in _WAYS if way in named] + sorted(named - _WAYS.keys()) or ["mean"]
    ways = [ways] if isinstance(ways, str) else list(ways)
    unknown = [way for way in ways if way not in _WAYS]
    if unknown:
        raise UsageError(
            f"{folder / 'config.json'} pools by {unknown[0]}; torchferry knows "
            f"{', '.join(_WAYS)}: give package.module:factory"
        )
    return _Pooling(ways)


def _read_dense(folder: Path) -> nn.Module:
    settings = _read_settings(folder)
    width, size = (_read_size(settings, name, folder) for name in ("in_features", "out_features"))
    place, _, name = str(settings.get("activation_function", "")).rpartition(".")
    activation = getattr(nn, name, None) if place.startswith("torch.nn.modules.") else None
    known = isinstance(activation, type) and issubclass(activation, nn.Module)
    if activation is None or not known or settings.get("use_residual"):
        said = "use_residual" if known else f"activation_function {place}.{name}"
        raise UsageError(
            f"{folder / 'config.json'} has {said}, which torchferry does not read: give "
            "package.module:factory"
        )
    linear = nn.Linear(width, size, bias=settings.get("bias", True))
    _fill(linear, folder, "linear.")
    return _apply(nn.Sequential(linear, activation()), settings)


def _read_norm(folder: Path) -> nn.Module:
    settings = _read_settings(folder)
    norm = nn.LayerNorm(_read_size(settings, "dimension", folder))
    _fill(norm, folder, "norm.")
    return _apply(norm, settings)


def _apply(module: nn.Module, settings: dict[str, Any]) -> nn.Module:
    source = settings.get("module_input_name") or _EMBEDDING
    return _Applied(module, source, settings.get("module_output_name") or source)


def _fill(module: nn.Module, folder: Path, prefix: str) -> None:
    path = folder / "model.safetensors"
    if not path.is_file():
        raise UsageError(
            f"{folder} has no model.safetensors; save the model again with safe_serialization=True"
        )
    tensors = map_file(path).tensors
    wanted = {name: tensors.get(prefix + name) for name in module.state_dict()}
    for name, own in module.state_dict().items():
        tensor = wanted[name]
        if tensor is None or tensor.shape != own.shape:
            raise UsageError(f"{path} has no {prefix}{name} of shape {list(own.shape)}")
        own.copy_(tensor)


def _read_size(settings: Any, name: str, folder: Path) -> int:
    size = settings.get(name)
    if not isinstance(size, int) or not 0 < size < _MOST:
        raise UsageError(f"{folder / 'config.json'} has no size {name!r}; copy the folder again")
    return size


def _read_settings(folder: Path) -> dict[str, Any]:
    """The settings of a module; none if it has no file of them."""
    path = folder / "config.json"
    settings = read_json(path) if path.is_file() else {}
    if not isinstance(settings, dict):
        raise UsageError(f"{path} holds no settings by name; copy the folder again")
    return settings


_STAGES: dict[str, Callable[[Path], nn.Module]] = {
    "Pooling": _read_pooling,
    "Dense": _read_dense,
    "Normalize": lambda folder: _apply(_Unit(), _read_settings(folder)),
    "LayerNorm": _read_norm,
    "Dropout": lambda _: nn.Identity(),
}
"""What may follow the encoder."""
