"""Models from local Hugging Face folders: ``config.json`` and ``*.safetensors``."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch import nn

from torchferry.errors import UsageError
from torchferry.seams.huggingface import classes_of
from torchferry.sources.images import build_drawn
from torchferry.sources.mapped import (
    MappedFile,
    checkpoint_files,
    map_file,
    mapped_tensors,
    read_json,
)
from torchferry.sources.packed import Unpacked, read_packing, unpack_weights
from torchferry.values.kinds import attempt
from torchferry.zoo.library import import_transformers, quiet

__all__ = [
    "MappedCheckpoint",
    "build_checkpoint",
    "has_weights",
    "load_checkpoint",
    "map_checkpoint",
]

_COUNTED = re.compile(r"(layers?|blocks?|depths?|stages?|experts?|heads?)$")
"""Names of entries of ``config.json`` that say how many modules are built."""
_MOST = 100_000
_ENCODERS = {"t5": "T5EncoderModel", "mt5": "MT5EncoderModel", "umt5": "UMT5EncoderModel"}
_WEIGHTS = ("*.safetensors", "*.bin", "*.gguf", "*.h5", "*.msgpack", "*.pt", "*.pth", "*.onnx")


def load_checkpoint(folder: Path, *, encoder: bool = False) -> nn.Module:
    """Load the model whose class ``config.json`` names, in eval mode, in the dtype it is stored.

    Nothing is downloaded, nothing is unpickled, and no code from the folder runs. Weights that
    GPTQ or AWQ packed become float32, and the whole model does: see `packed`.

    Args:
        folder: holds ``config.json`` and one or more ``*.safetensors`` files.
        encoder: load the model without a head, as ``AutoModel`` does, whatever class is named.

    Raises:
        UsageError: a file is missing or damaged, a weight is missing, or transformers is missing
            or does not know the class.
    """
    if read_packing(folder) is not None:
        return map_checkpoint(folder, encoder=encoder).model
    transformers, model_class = _filled_class(folder, encoder=encoder)
    how = {"use_safetensors": True}
    return _loaded(transformers, model_class, folder, str(folder), encoder=encoder, **how)


def has_weights(folder: Path) -> bool:
    """Whether a folder holds weights in any format, or no ``config.json`` to draw them by."""
    return not (folder / "config.json").is_file() or any(
        any(folder.glob(pattern)) for pattern in _WEIGHTS
    )


def build_checkpoint(folder: Path) -> nn.Module:
    """Build the model that ``config.json`` describes, in eval mode, its weights drawn in float32.

    Args:
        folder: holds ``config.json``; see `has_weights`.

    Raises:
        UsageError: the file is damaged, or transformers is missing or does not know the class.
    """
    transformers, model_class = _model_class(folder)
    read = partial(model_class.config_class.from_pretrained, str(folder), local_files_only=True)

    def build() -> nn.Module:
        model: nn.Module = model_class(read())
        return model

    with quiet(transformers):
        return build_drawn(partial(_read, folder, model_class.__name__, build))


@dataclass(frozen=True)
class MappedCheckpoint:
    """A model whose weights lie in mapped files.

    Attributes:
        model: in eval mode.
        files: the files of the checkpoint, mapped as long as this lives.
    """

    model: nn.Module
    files: tuple[MappedFile, ...]


def map_checkpoint(folder: Path, *, encoder: bool = False) -> MappedCheckpoint:
    """Load the model of a folder without reading its weights: they stay in their files, mapped.

    transformers decides which stored tensor is which weight. What it merges, splits or casts on
    the way (the experts of some mixtures, say) is computed, and lies in memory as usual.

    Args:
        folder: see `load_checkpoint`.
        encoder: see `load_checkpoint`.

    Raises:
        UsageError: see `load_checkpoint`.
    """
    transformers, model_class = _filled_class(folder, encoder=encoder)
    files = tuple(map_file(path) for path in checkpoint_files(folder))
    read = partial(model_class.config_class.from_pretrained, local_files_only=True)
    config = _read(folder, model_class.__name__, partial(read, str(folder)))
    how = {"config": config, "state_dict": mapped_tensors(files)}
    packing = read_packing(folder)
    if packing is None:
        model = _loaded(transformers, model_class, folder, None, encoder=encoder, **how)
        return MappedCheckpoint(model, files)
    unpacked = unpack_weights(packing, how["state_dict"], folder)
    del config.quantization_config
    how |= {"state_dict": unpacked.tensors, "dtype": torch.float32}
    model = _loaded(transformers, model_class, folder, None, encoder=encoder, **how)
    _check_unpacked(model, unpacked, folder)
    return MappedCheckpoint(model, ())


def _check_unpacked(model: nn.Module, unpacked: Unpacked, folder: Path) -> None:
    """Refuse packed weights of modules that keep theirs as (inputs, outputs), or had a bias."""
    modules = dict(model.named_modules())
    prefix = f"{getattr(model, 'base_model_prefix', '')}."
    for name in sorted(unpacked.names):
        owner = name.removesuffix(".weight")
        names = owner, owner.removeprefix(prefix), f"{prefix}{owner}"
        module = next((modules[one] for one in names if one in modules), None)
        if module is None:  # transformers made one tensor of several
            continue
        if not isinstance(module, nn.Linear):
            raise UsageError(
                f"{folder} holds {name} packed, and {type(model).__name__} has a "
                f"{type(module).__name__} there, not a Linear: give the model in floating point"
            )
        bias = unpacked.tensors.get(f"{owner}.bias")
        if getattr(module, "bias", None) is None and bias is not None and bias.any():
            raise UsageError(
                f"{folder} holds {owner}.bias, where {type(model).__name__} with this config.json "
                "has none; is it of the same model?"
            )


def _model_class(folder: Path) -> tuple[ModuleType, Any]:
    """transformers, and the class in it that ``config.json`` names."""
    architecture = _read_architecture(folder)
    transformers = import_transformers(f"the model folder {folder}")
    model_class = getattr(transformers, architecture, None)
    if model_class is None:
        raise UsageError(
            f"{folder / 'config.json'} names {architecture}, which transformers "
            f"{transformers.__version__} does not have; torchferry runs no code from a model "
            "folder: give package.module:factory"
        )
    return transformers, model_class


def _encoder_class(transformers: ModuleType, model_class: Any) -> Any:
    """The class without a head: of encoder-decoders the encoder's, as sentence-transformers."""
    config = model_class.config_class
    name = _ENCODERS.get(config.model_type)
    found = classes_of(transformers.AutoModel).get(config, None) if name is None else None
    first = found[0] if isinstance(found, tuple) else found
    return getattr(transformers, name) if name else first or model_class


def _filled_class(folder: Path, *, encoder: bool) -> tuple[ModuleType, Any]:
    """As `_model_class`, of a folder that has weights that can be read."""
    transformers, model_class = _model_class(folder)
    if not any(folder.glob("*.safetensors")):
        pickled = sorted(p.name for p in folder.glob("*.bin"))
        hint = (
            f"only pickled ones ({pickled[0]}), which torchferry never loads: save the model "
            "again with save_pretrained"
            if pickled
            else "save the model with save_pretrained"
        )
        raise UsageError(f"{folder} has no weights in *.safetensors; {hint}")
    return transformers, _encoder_class(transformers, model_class) if encoder else model_class


def _loaded(
    transformers: ModuleType,
    model_class: Any,
    folder: Path,
    source: str | None,
    *,
    encoder: bool,
    **how: Any,
) -> nn.Module:
    """What ``from_pretrained`` makes of a source, when nothing is missing."""
    load = partial(
        model_class.from_pretrained,
        source,
        local_files_only=True,
        output_loading_info=True,
        ignore_mismatched_sizes=True,  # listed in ``found``; refused below, by name
        **({"dtype": "auto"} | how),
    )
    with quiet(transformers):
        model, found = _read(folder, model_class.__name__, load)
    _check_complete(found, folder, model_class.__name__, encoder=encoder)
    loaded: nn.Module = model.eval()
    return loaded


def _read(folder: Path, architecture: str, load: Callable[[], Any]) -> Any:
    """What a function of transformers makes of a folder; of a bad one it may raise anything.

    Raises:
        UsageError: it raised something.
    """
    result, error = attempt(load)
    if error is not None:
        reason = f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"
        raise UsageError(
            f"{folder} cannot be loaded as {architecture}: {reason}\n"
            "Compare config.json with that of the model, or save it again by save_pretrained"
        ) from error
    return result


def _check_complete(
    found: Mapping[str, Any], folder: Path, architecture: str, *, encoder: bool
) -> None:
    """Refuse weights that are missing or misshapen: transformers goes on with random ones."""
    # A head was saved in the place of the pooler; what is read of the outputs does not need it.
    missing = sorted(n for n in found["missing_keys"] if not (encoder and n.startswith("pooler.")))
    if missing:
        raise UsageError(
            f"{folder} lacks {len(missing)} weights of {architecture}, "
            f"the first is {missing[0]!r}; is config.json of the same model?"
        )
    for one in sorted(found["mismatched_keys"]):
        name, *shapes = [one] if isinstance(one, str) else one  # transformers 4 gives names alone
        stored, expected = [f"as {list(shape)}" for shape in shapes] or ["in one shape", "another"]
        raise UsageError(
            f"{folder} holds {name!r} {stored}, where {architecture} with this config.json has "
            f"{expected.removeprefix('as ')}; is config.json of the same model?"
        )


def _read_architecture(folder: Path) -> str:
    """Name of the model's class, after a look at what the folder holds."""
    if not folder.is_dir():
        raise UsageError(f"there is no folder {folder}")
    path = folder / "config.json"
    if not path.is_file():
        raise UsageError(f"{folder} has no config.json: it is not a Hugging Face model folder")
    config = read_json(path)
    _check_counts(config, path)
    architectures = config.get("architectures") if isinstance(config, dict) else None
    if not isinstance(architectures, list) or not architectures:
        raise UsageError(
            f"{path} has no entry 'architectures'; add the model's class: "
            '"architectures": ["LlamaForCausalLM"]'
        )
    return str(architectures[0])


def _check_counts(config: Any, path: Path) -> None:
    """Refuse a number of layers that no model has: building them would never end."""
    for key, value in config.items() if isinstance(config, dict) else ():
        _check_counts(value, path)
        numbers = value if isinstance(value, list) else [value]
        if _COUNTED.search(key) and any(isinstance(n, int) and n > _MOST for n in numbers):
            raise UsageError(
                f"{path} is damaged: {key} is {str(value)[:40]}, and no model has more than "
                f"{_MOST}; copy it again"
            )
